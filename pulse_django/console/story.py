"""What the page of a job tells: its runs as a drawing and as a list, the lease, and who belongs to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ..functions import ClockTimestamp
from ..models import Attempt, Job
from ..ops.terminal import in_words
from ..states import Status
from .timeline import BAR, Span, Timeline, draw

MOST_ATTEMPTS = 200  # the latest
MOST_CHILDREN = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    timeline: Timeline
    attempts: Sequence[Attempt]  # the latest first
    lease_left: timedelta | None  # by the server's clock; negative: a watchdog has not seen it yet
    parent: Job | None
    children: list[Job]
    share_done: float | None  # of the progress, if it says so


def story_of(job: Job) -> Story:
    """Read what belongs to a job: three short queries."""
    rows = Attempt.objects.using(job._state.db).filter(job=job).annotate(now=ClockTimestamp())
    attempts = list(rows.order_by("-number")[:MOST_ATTEMPTS])
    now = attempts[0].now if attempts else _now(job)
    spans = [_span_of(attempt) for attempt in attempts]
    if job.status == Status.RUNNING and job.started_at is not None:
        spans.append(Span(number=job.attempts, begun=job.started_at, ended=None, worker=_short(job.locked_by or "")))
    family = Job.objects.using(job._state.db).only("id", "task", "status")
    return Story(
        timeline=draw(job.created_at, spans, now),
        attempts=attempts,
        lease_left=job.lease_until - now if job.lease_until is not None else None,
        parent=family.filter(pk=job.parent_id).first() if job.parent_id else None,
        children=list(family.filter(parent_id=job.pk).order_by("id")[:MOST_CHILDREN]),
        share_done=share_of(job.progress),
    )


def share_of(progress: Any) -> float | None:
    """Return how much of the work is done, from 0 to 1, if the handler told both numbers."""
    if not isinstance(progress, dict):
        return None
    done, total = progress.get("done"), progress.get("total")
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in (done, total)):
        return None
    return min(max(float(done) / float(total), 0.0), 1.0) if total else None  # type: ignore[arg-type]  # numbers


def _span_of(attempt: Attempt) -> Span:
    return Span(
        number=attempt.number,
        begun=attempt.started_at,
        ended=attempt.finished_at,
        outcome=attempt.outcome,
        worker=_short(attempt.worker),
        late_at=attempt.late_at,
        late_outcome=attempt.late_outcome,
    )


def _short(holder: str) -> str:
    return holder.partition(":")[0]


def _now(job: Job) -> datetime:
    rows = Job.objects.using(job._state.db).filter(pk=job.pk).annotate(now=ClockTimestamp())
    instant: datetime = rows.values_list("now", flat=True)[0]
    return instant


def told_of(job: Job) -> dict[str, Any]:
    """Return what the template of a job's page shows. Numbers of the drawing are text, which no locale rewrites."""
    story = story_of(job)
    timeline = story.timeline
    return {
        "story": story,
        "attempts": story.attempts,
        "counted": job.attempts - job.refunds,
        "lease_left": None if story.lease_left is None else in_words(story.lease_left.total_seconds()),
        "share_done": None if story.share_done is None else f"{story.share_done:.4f}",
        "timeline_height": f"{timeline.height:.0f}",
        "marks": [{"x": f"{mark.x:.1f}", "says": mark.says} for mark in timeline.marks],
        "labels": [{"baseline": f"{label.y + BAR - 3:.1f}", "says": label.says} for label in timeline.labels],
        "shapes": [
            {
                "kind": shape.kind,
                "x": f"{shape.x:.1f}",
                "y": f"{shape.y:.1f}",
                "width": f"{shape.width:.1f}",
                "height": str(shape.height),
                "says": shape.says,
            }
            for shape in timeline.shapes
        ],
    }
