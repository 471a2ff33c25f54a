"""What a selection matches, in bounded time: counts by status and task, and the newest jobs.

Each status is asked through its own index. Of what completed or was cancelled only the latest are looked at, because
no index knows their task or their error, and there may be millions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F

from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.states import CLAIMABLE, Status

from .preview import error_line
from .selection import Selection

# How many jobs of a status that grows without bound are looked at, latest first: some tens of milliseconds' worth.
LATEST = 5_000
NEWEST = 20
MOST_KINDS = 200

_INDEXED = ((Status.WAITING,), CLAIMABLE, (Status.RUNNING,), (Status.DEAD_LETTERED,))
_UNBOUNDED = (Status.COMPLETED, Status.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchingKind:
    jobs: int
    status: str
    task: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
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
    is_partial: bool  # only the latest COMPLETED and CANCELLED were looked at


def match(selection: Selection, alias: str) -> Matching:
    """Count and show what matches."""
    parts, is_partial = _parts(selection, alias)
    counts = [part.order_by().values("status", "task").annotate(jobs=Count("*")) for part in parts]
    # The sum keeps each part on its own index: ordered by id alone, the planner may read the primary key backwards
    # through all that has finished.
    newest = [_shown(part.order_by((F("id") + 0).desc()))[:NEWEST] for part in parts]
    kinds = sorted((MatchingKind(**row) for row in _all(counts)), key=lambda kind: (-kind.jobs, kind.status, kind.task))
    found = sorted((Found(**row) for row in _all(newest)), key=lambda job: -job.id)
    return Matching(kinds=tuple(kinds[:MOST_KINDS]), newest=tuple(found[:NEWEST]), is_partial=is_partial)


def _parts(selection: Selection, alias: str) -> tuple[list[JobQuerySet], bool]:
    """Return one query for each index, and whether they leave something out."""
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
    """Return when the first job ended that is too many.

    The retention index answers for status and age; the rest is asked only of what it finds. As a value and not as a
    subquery: the planner then knows how few rows are meant, and does not read the table.
    """
    aged = Selection(statuses=(status,), older_than=selection.older_than, newer_than=selection.newer_than)
    ended = aged.jobs(alias).order_by("-finished_at", "-id").values_list("finished_at", flat=True)
    return next(iter(ended[LATEST : LATEST + 1]), None)


def _shown(part: JobQuerySet) -> Any:
    age = StatementTimestamp() - F("created_at")
    return part.values("id", "status", "queue", "task", "attempts", age=age, error=error_line())


def _all(parts: list[Any]) -> Any:
    first, *others = parts
    return first.union(*others, all=True) if others else first
