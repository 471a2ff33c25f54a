"""Preview what an operation would change: how many jobs, of which kind, how old. Read-only."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.db.models import Count, F, Func, Max, Min, Q, TextField, Value
from django.db.models.functions import Coalesce, Left

from pulse_django.models import Job
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.sql_functions import StatementTimestamp
from pulse_django.words.display import in_words
from pulse_django.words.states import Status

from .terminal import table

TOP = 10
# Characters of an error's first line: longer ones differ in what says nothing, as an id in a URL.
ERROR_LENGTH = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewGroup:
    """Jobs that are alike."""

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
    others: int  # jobs in no group above
    lowest_id: int | None
    oldest: datetime | None  # when it ended, or was created if it has not
    newest: datetime | None
    oldest_age: timedelta | None
    newest_age: timedelta | None


class FirstLine(Func):
    """The first line of a text."""

    function = "pg_catalog.split_part"
    output_field = TextField()

    def __init__(self, text: str) -> None:
        super().__init__(F(text), Value("\n"), Value(1))


def error_line() -> Left:
    return Left(FirstLine("last_error"), ERROR_LENGTH, function="pg_catalog.left")


def look(jobs: JobQuerySet, *, limit: int | None = None) -> Preview:
    """Count what matches, or the first ``limit`` of it."""
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


def _groups(jobs: JobQuerySet) -> tuple[PreviewGroup, ...]:
    kinds = jobs.values("status", "queue", "task", error=error_line()).annotate(jobs=Count("*"))
    return tuple(PreviewGroup(**kind) for kind in kinds.order_by("-jobs", "status", "queue", "task", "error")[:TOP])


def in_lines(preview: Preview) -> list[str]:
    """Tell the preview to a person."""
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
