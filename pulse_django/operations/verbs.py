"""The operations on many jobs: the jobs that each applies to, the fenced verb that does it, and its summary.

Every verb of ``Job.objects`` looks at each row once more when it acts. What has moved on since the preview is left as
it is, and counted.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Protocol

from django.db.models import Q

from pulse_django import conf
from pulse_django.execution.moving import movable, move
from pulse_django.models import Job, StoredBatch
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.display import in_words
from pulse_django.words.states import Status

from .acts import ACTS, LIVE, Given
from .preview import Selection, has_status, with_families

Counts = Mapping[str, int]  # by the name that JSON gives them


class MassVerb(Protocol):
    """One intention of an operator."""

    @property
    def noun(self) -> str:
        """What it acts on, in the plural."""

    @property
    def answers(self) -> tuple[str, ...]:
        """What may have happened to a job: the names in its counts."""

    def jobs(self, alias: str) -> JobQuerySet:
        """Return what it would act on now."""

    def act(self, alias: str, ids: Collection[int]) -> Counts:
        """Do it to these jobs, and count what happened."""

    def would(self, matches: int, running: int) -> str:
        """Say what it would do."""

    def summary(self, counts: Counts) -> str:
        """Say what it did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryMany:
    """Retry dead letters."""

    selection: Selection
    runs: int = 1
    delay: timedelta = timedelta()
    cancelled_too: bool = False  # also those whose batch was cancelled
    noun = "dead letters"
    answers = ("revived", "moved_on", "twins", "of_cancelled")

    def jobs(self, alias: str) -> JobQuerySet:
        return replace(self.selection, statuses=(Status.DEAD_LETTERED,)).jobs(alias)

    def of_cancelled(self, alias: str) -> JobQuerySet:
        """Return those of them whose batch was cancelled."""
        cancelled = StoredBatch.objects.using(alias).filter(cancelled_at__isnull=False)
        return self.jobs(alias).filter(batch_id__in=cancelled.values("pk"))

    def act(self, alias: str, ids: Collection[int]) -> Counts:
        given = {"runs": self.runs, "delay": self.delay, "cancelled_too": self.cancelled_too}
        return _counted("retry", alias, ids, given)

    def would(self, matches: int, running: int) -> str:
        runs = f"{self.runs} more run{'s' if self.runs > 1 else ''}"
        when = f", after {in_words(self.delay.total_seconds())}" if self.delay else ""
        return f"Would retry {matches}, each with at least {runs}{when}"

    def summary(self, counts: Counts) -> str:
        twins = f" {counts['twins']} left: another job has their unique key." if counts["twins"] else ""
        left = f" {left_of_cancelled(counts['of_cancelled'])}" if counts["of_cancelled"] else ""
        return f"{counts['revived']} retried, {counts['moved_on']} no longer matched.{twins}{left}"


def left_of_cancelled(count: int) -> str:
    """Say how many dead letters were not retried because their workflow was cancelled."""
    whose, which = ("its", "it") if count == 1 else ("their", "them")
    return f"{count} left: {whose} workflow was cancelled. --cancelled-too retries {which}."


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelMany:
    """Cancel what waits, and ask what runs to stop. A job that was asked before is not asked again."""

    selection: Selection
    reason: str = ""
    children: bool = False
    noun = "live jobs"
    answers = ("cancelled", "asked", "refused")

    def jobs(self, alias: str) -> JobQuerySet:
        meant = self.selection
        # A parent that has ended may have children that go on: named by its id, it is meant for their sake.
        if not (self.children and meant.ids):
            meant = replace(meant, statuses=meant.statuses or LIVE)
        found = meant.jobs(alias)
        if self.children:
            found = with_families(found)
        return found.filter(has_status(LIVE), cancel_requested_at__isnull=True)

    def act(self, alias: str, ids: Collection[int]) -> Counts:
        return _counted("cancel", alias, ids, {"why": self.reason})

    def would(self, matches: int, running: int) -> str:
        return f"Would cancel {matches - running} waiting jobs and ask {running} running jobs to stop"

    def summary(self, counts: Counts) -> str:
        cancelled, asked, refused = counts["cancelled"], counts["asked"], counts["refused"]
        return f"{cancelled} cancelled, {asked} asked to stop, {refused} had already ended."


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneMany:
    """Delete jobs that have ended, with their attempts. Without an age, those that outlived their retention."""

    selection: Selection
    noun = "ended jobs"
    answers = ("deleted", "left", "needed")

    @property
    def statuses(self) -> tuple[Status, ...]:
        """Dead letters are deleted only when they are named: an operator should have read them."""
        return self.selection.statuses or (Status.COMPLETED, Status.CANCELLED)

    def jobs(self, alias: str) -> JobQuerySet:
        jobs = replace(self.selection, statuses=self.statuses).jobs(alias).terminal()
        if self.selection.older_than is not None:
            return jobs
        outlived = Q(pk__in=())
        for age in {retention(status) for status in self.statuses} - {timedelta()}:
            same = [status for status in self.statuses if retention(status) == age]
            outlived |= Q(status__in=same, finished_at__lt=StatementTimestamp() - age)
        return jobs.filter(outlived)

    def act(self, alias: str, ids: Collection[int]) -> Counts:
        return _counted("delete", alias, ids, {})

    def would(self, matches: int, running: int) -> str:
        return f"Would permanently delete {matches} and their attempts"

    def summary(self, counts: Counts) -> str:
        left, needed = counts["left"], counts["needed"]
        said = f"{counts['deleted']} deleted, {left} {'was' if left == 1 else 'were'} locked or no longer matched."
        return f"{said} {needed} left: other jobs wait for {'it' if needed == 1 else 'them'}." if needed else said


def _counted(act: str, alias: str, ids: Collection[int], given: Given) -> Counts:
    return {name: len(some) for name, some in ACTS[act].do(alias, ids, given).items()}


def retention(status: Status) -> timedelta:
    """Return for how long the settings keep jobs that ended so; 0: for ever."""
    kept = conf.current().retention
    if status not in kept:
        raise ValueError(f"{status} is not a final status: prune does not delete live jobs")
    return kept[status]


# Move waiting jobs to another shard, as one of the operations on many jobs.


KeyRange = tuple[str, str]  # the first four digits of the hashes of keys: from, and below


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveMany:
    """Move what waits and is counted by nothing here."""

    selection: Selection
    to: str
    keys: KeyRange | None = None
    noun = "waiting jobs that can be moved"
    answers = ("moved", "went_back", "left")

    def jobs(self, alias: str) -> JobQuerySet:
        found = self.selection.jobs(alias)
        if self.keys is not None:
            first, below = self.keys
            found = found.filter(lane_key__gte=f":{first}", lane_key__lt=f":{below}")
        return movable(found)

    def act(self, alias: str, ids: Collection[int]) -> Counts:
        done = move(Job.objects.using(alias).filter(pk__in=list(ids)), self.to)
        left = len(ids) - done.moved - done.went_back
        return {"moved": done.moved, "went_back": done.went_back, "left": left}

    def would(self, matches: int, running: int) -> str:
        return f"Would move {matches} to shard {self.to!r}"

    def summary(self, counts: Counts) -> str:
        back = f" {counts['went_back']} stayed: another job there has their key." if counts["went_back"] else ""
        return f"{counts['moved']} moved, {counts['left']} were locked or no longer matched.{back}"
