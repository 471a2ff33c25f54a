"""Preview the jobs of an operation: how many, of which kind, how old. Read-only."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, NamedTuple

from django.db.models import Count, F, Func, Max, Min, Q, TextField, Value
from django.db.models.expressions import RawSQL
from django.db.models.functions import Coalesce, Left

from pulse_django.models import Job
from pulse_django.queue.database.job_queries import FAMILY
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status

from .terminal import table

TOP = 10
# Characters of the first line of an error. Longer texts differ in details, such as an id in a URL.
ERROR_LENGTH = 100


class PreviewGroup(NamedTuple):
    """Jobs of the same kind."""

    jobs: int
    status: str
    queue: str
    task: str
    error: str  # its first line


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview:
    matches: int
    running: int  # of them
    groups: tuple[PreviewGroup, ...]  # the largest
    others: int  # jobs in other groups
    lowest_id: int | None
    oldest: datetime | None  # when it ended, or was created if it has not
    newest: datetime | None
    oldest_age: timedelta | None
    newest_age: timedelta | None


_FIRST_LINE = Func(F("last_error"), Value("\n"), Value(1), function="pg_catalog.split_part", output_field=TextField())
ERROR_LINE = Left(_FIRST_LINE, ERROR_LENGTH, function="pg_catalog.left")


def look(jobs: JobQuerySet[Job], *, limit: int | None = None) -> Preview:
    """Count the matching jobs, or the first ``limit`` of them."""
    if limit is not None:
        first = jobs.order_by("id").values("id")[:limit]
        jobs = Job.objects.using(jobs.db).filter(pk__in=first)
    since = Coalesce("finished_at", "created_at")
    facts: dict[str, Any] = jobs.aggregate(
        matches=Count("*"),
        running=Count("id", filter=Q(status=Status.RUNNING), function="pg_catalog.count"),
        lowest_id=Min("id"),
        oldest=Min(since),
        newest=Max(since),
        oldest_age=StatementTimestamp() - Min(since),
        newest_age=StatementTimestamp() - Max(since),
    )
    groups = _groups(jobs) if facts["matches"] else ()
    others = max(0, facts["matches"] - sum(group.jobs for group in groups))
    return Preview(groups=groups, others=others, **facts)


def _groups(jobs: JobQuerySet[Job]) -> tuple[PreviewGroup, ...]:
    kinds = jobs.values("status", "queue", "task", error=ERROR_LINE).annotate(jobs=Count("*"))
    return tuple(PreviewGroup(**kind) for kind in kinds.order_by("-jobs", "status", "queue", "task", "error")[:TOP])


def in_lines(preview: Preview) -> list[str]:
    """Return the preview as lines of text."""
    if not preview.matches:
        return []
    rows = [(group.jobs, group.status, group.queue, group.task, group.error) for group in preview.groups]
    lines = table(("jobs", "status", "queue", "task", "error"), rows)
    if preview.others:
        lines.append(f"  and {preview.others} more")
    for name, instant, age in (
        ("oldest", preview.oldest, preview.oldest_age),
        ("newest", preview.newest, preview.newest_age),
    ):
        if instant is not None and age is not None:
            lines.append(f"  {name}: {instant.isoformat(' ', 'seconds')}, {in_words(age.total_seconds())} ago")
    return lines


# The matches of a selection, in bounded time: counts by status and task, and the newest jobs.
#
# Each status is read with its own index. Only the latest completed and cancelled jobs are read, because no index has
# their task or their error, and there may be millions.


# The number of completed or cancelled jobs that are read, latest first. This takes some tens of milliseconds.
LATEST = 5_000
NEWEST = 20
MOST_KINDS = 200

_INDEXED = ((Status.WAITING,), CLAIMABLE, (Status.RUNNING,), (Status.DEAD_LETTERED,))
_UNBOUNDED = (Status.COMPLETED, Status.CANCELLED)


class MatchingKind(NamedTuple):
    jobs: int
    status: str
    task: str


class Found(NamedTuple):
    id: int
    status: str
    queue: str
    task: str
    attempts: int
    age: timedelta  # since it was created
    error: str  # its first line


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    kinds: tuple[MatchingKind, ...]
    newest: tuple[Found, ...]
    is_partial: bool  # only the latest COMPLETED and CANCELLED were read


def match(selection: Selection, alias: str) -> Matching:
    """Count the matching jobs, and return the newest."""
    parts, is_partial = _parts(selection, alias)
    counts = [part.order_by().values("status", "task").annotate(jobs=Count("*")) for part in parts]
    # The sum keeps each part on its own index: ordered by the id itself, the planner may read all finished jobs in the
    # primary key.
    newest = [_shown(part.order_by((F("id") + 0).desc()))[:NEWEST] for part in parts]
    kinds = sorted((MatchingKind(**row) for row in _all(counts)), key=lambda kind: (-kind.jobs, kind.status, kind.task))
    found = sorted((Found(**row) for row in _all(newest)), key=lambda job: -job.id)
    return Matching(kinds=tuple(kinds[:MOST_KINDS]), newest=tuple(found[:NEWEST]), is_partial=is_partial)


def _parts(selection: Selection, alias: str) -> tuple[list[JobQuerySet[Job]], bool]:
    """Return one query for each index, and whether they skip older jobs."""
    if selection.ids:
        return [selection.jobs(alias)], False
    meant = selection.statuses or tuple(Status)
    parts, is_partial = [], False
    for group in _INDEXED:
        if statuses := tuple(status for status in group if status in meant):
            parts.append(replace(selection, statuses=statuses).jobs(alias))
    for status in _UNBOUNDED:
        if status in meant:
            part = replace(selection, statuses=(status,)).jobs(alias)
            if (bound := _bound(selection, status, alias)) is not None:
                part, is_partial = part.filter(finished_at__gt=bound), True
            parts.append(part)
    return parts, is_partial


def _bound(selection: Selection, status: Status, alias: str) -> datetime | None:
    """Return the instant before which jobs are not read, or None if there are few.

    The retention index has status and age; other filters apply to the rows that it finds. The instant is a value and
    not a subquery, so that the planner knows how few rows match, and does not read the table.
    """
    aged = Selection(statuses=(status,), older_than=selection.older_than, newer_than=selection.newer_than)
    ended = aged.jobs(alias).order_by("-finished_at", "-id").values_list("finished_at", flat=True)
    return next(iter(ended[LATEST : LATEST + 1]), None)


def _shown(part: JobQuerySet[Job]) -> Any:
    age = StatementTimestamp() - F("created_at")
    return part.values("id", "status", "queue", "task", "attempts", age=age, error=ERROR_LINE)


def _all(parts: list[Any]) -> Any:
    first, *others = parts
    return first.union(*others, all=True) if others else first


# The selection of an operator: a frozen value from which commands and the admin build the same query.


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A filter of jobs. Empty fields do not filter; a job must match all others."""

    ids: tuple[int, ...] = ()
    queues: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    statuses: tuple[Status, ...] = ()
    tags: tuple[str, ...] = ()  # a job must have all of them
    error: str = ""  # a part of last_error, case-insensitive
    # Since the job ended, or since it was created if it has not.
    older_than: timedelta | None = None
    newer_than: timedelta | None = None

    @property
    def is_everything(self) -> bool:
        return self == Selection()

    def jobs(self, alias: str) -> JobQuerySet[Job]:
        """Return the matching jobs, unordered."""
        given: dict[str, Any] = {"pk__in": self.ids, "queue__in": self.queues, "task__in": self.tasks}
        given["last_error__icontains"] = self.error
        found: JobQuerySet[Job] = Job.objects.using(alias).filter(**{name: one for name, one in given.items() if one})
        if self.statuses:
            found = found.filter(has_status(self.statuses))
        if self.tags:
            found = found.tagged(*self.tags)
        if self.older_than is not None:
            found = found.filter(self._since("lte", self.older_than))
        if self.newer_than is not None:
            found = found.filter(self._since("gt", self.newer_than))
        return found

    def _since(self, comparison: str, age: timedelta) -> Q:
        """Use OR only if both kinds of status match: PostgreSQL cannot use the retention index for an OR."""
        meant = frozenset(self.statuses or Status)
        ended = Q(**{f"finished_at__{comparison}": StatementTimestamp() - age})
        not_ended = Q(**{f"created_at__{comparison}": StatementTimestamp() - age})
        if meant.issubset(TERMINAL):
            return ended
        if meant.isdisjoint(TERMINAL):
            return not_ended
        return ended | Q(finished_at__isnull=True) & not_ended


def has_status(statuses: Collection[Status]) -> Q:
    """Return one condition for each index with such jobs. With one list of mixed statuses, PostgreSQL would read the
    whole table."""
    parts = ((Status.WAITING,), CLAIMABLE, (Status.RUNNING,), TERMINAL)
    meant = [[status for status in part if status in statuses] for part in parts]
    return reduce(or_, (Q(status__in=part) for part in meant if part), Q(pk__in=()))


def with_families(roots: JobQuerySet[Job]) -> JobQuerySet[Job]:
    """Return these jobs and all their descendants: jobs that their handlers enqueued, and so on.

    The roots are read once, here: after a root is cancelled, no filter finds it or its descendants.
    """
    ids = list(roots.order_by("id").values_list("id", flat=True))
    # A condition with a subquery, so that a million ids are not sent to the server.
    family: JobQuerySet[Job] = Job.objects.using(roots.db).filter(pk__in=RawSQL(FAMILY, [ids]))  # noqa: S611 - a constant
    return family


def unmatched(jobs: JobQuerySet[Job], ids: Collection[int]) -> dict[int, str | None]:
    """Return the ids that are not among ``jobs``, with their statuses, or None for ids that do not exist."""
    if not ids:
        return {}
    named = Job.objects.using(jobs.db).filter(pk__in=ids)
    statuses: dict[int, str] = dict(named.values_list("id", "status"))
    matched = frozenset(jobs.filter(pk__in=ids).values_list("id", flat=True))
    return {job_id: statuses.get(job_id) for job_id in sorted(set(ids)) if job_id not in matched}
