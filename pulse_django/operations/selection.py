"""Which jobs an operator selects: a frozen value that commands and the admin turn into the same query."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import reduce
from operator import or_

from django.db.models import Q
from django.db.models.expressions import RawSQL

from pulse_django.models import Job
from pulse_django.store.job_queries import FAMILY
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.states import CLAIMABLE, TERMINAL, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """What is empty or None narrows nothing; what is given must all hold."""

    ids: tuple[int, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    tags: tuple[str, ...] = ()  # all of them
    error: str = ""  # a part of last_error, whatever its case
    # Since the job ended, or since it was created if it has not.
    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def jobs(self, alias: str) -> JobQuerySet:
        """Return the jobs that are meant, in no order."""
        found: JobQuerySet = Job.objects.using(alias).all()
        if self.ids:
            found = found.filter(pk__in=self.ids)
        if self.queues:
            found = found.filter(queue__in=self.queues)
        if self.tasks:
            found = found.filter(task__in=self.tasks)
        if self.statuses:
            found = found.filter(has_status(self.statuses))
        if self.tags:
            found = found.tagged(*self.tags)
        if self.error:
            found = found.filter(last_error__icontains=self.error)
        if self.older_than is not None:
            found = found.filter(self._since("lte", self.older_than))
        if self.newer_than is not None:
            found = found.filter(self._since("gt", self.newer_than))
        return found

    def _since(self, comparison: str, age: timedelta) -> Q:
        """An OR only where both kinds of status are meant: the retention index serves no OR."""
        meant = frozenset(self.statuses or Status)
        ended = Q(**{f"finished_at__{comparison}": StatementTimestamp() - age})
        not_ended = Q(**{f"created_at__{comparison}": StatementTimestamp() - age})
        if meant.issubset(TERMINAL):
            return ended
        if meant.isdisjoint(TERMINAL):
            return not_ended
        return ended | Q(finished_at__isnull=True) & not_ended


def has_status(statuses: Collection[Status]) -> Q:
    """One condition for each index that holds such jobs: no index serves a list that mixes them, and then PostgreSQL
    reads the whole table."""
    parts = ((Status.WAITING,), CLAIMABLE, (Status.RUNNING,), TERMINAL)
    meant = [[status for status in part if status in statuses] for part in parts]
    return reduce(or_, (Q(status__in=part) for part in meant if part), Q(pk__in=()))


def with_families(roots: JobQuerySet) -> JobQuerySet:
    """Return these jobs and all that their handlers enqueued, and those theirs.

    The roots are found now and for good: once one of them is cancelled, no filter finds it again, nor its children.
    """
    ids = list(roots.order_by("id").values_list("id", flat=True))
    # As a condition, so that a family of a million ids never travels.
    family: JobQuerySet = Job.objects.using(roots.db).filter(pk__in=RawSQL(FAMILY, [ids]))  # noqa: S611 - a constant
    return family


def unmatched(jobs: JobQuerySet, ids: Collection[int]) -> dict[int, str | None]:
    """Return which of these ids are not among ``jobs``, each with its status; None: there is no such job."""
    if not ids:
        return {}
    named = Job.objects.using(jobs.db).filter(pk__in=ids)
    statuses: dict[int, str] = dict(named.values_list("id", "status"))
    matched = frozenset(jobs.filter(pk__in=ids).values_list("id", flat=True))
    return {job_id: statuses.get(job_id) for job_id in sorted(set(ids)) if job_id not in matched}
