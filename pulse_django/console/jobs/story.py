"""The data of the page of a job: its runs as a timeline and as a list, its lease, its parent and children."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Left

from pulse_django.console.statuses import WITH_ERROR, due_shown
from pulse_django.models import Attempt, Job
from pulse_django.queue.database.sql_functions import UNREADABLE, ClockTimestamp
from pulse_django.queue.words.display import in_words, most_shown, share_of
from pulse_django.queue.words.masks import HIDDEN, is_encrypted
from pulse_django.queue.words.states import Status

from .timeline import GOOD, NEUTRAL, AmendedAt, Span, draw

MOST_ATTEMPTS = 200  # the latest
MOST_CHILDREN = 50
# The latest attempts, which are shown in full. A traceback may have 64,000 characters, so a page with two hundred of
# them would have 15 MB.
SHOWN_IN_FULL = 5
MOST_SAID = 500  # characters of the messages of other attempts
MOST_SAVED = 20_000  # characters of a checkpoint


def story_of(job: Job, amended: Sequence[AmendedAt] = ()) -> dict[str, Any]:
    """Read the attempts and relatives of a job with four short queries, and return the context of the template."""
    attempts = _attempts_of(job)
    now = attempts[0].now if attempts else _now(job)
    spans = [_span_of(attempt) for attempt in attempts]
    if job.status == Status.RUNNING and job.started_at is not None:
        spans.append(Span(number=job.attempts, begun=job.started_at, ended=None, worker=_short(job.locked_by or "")))
    family = Job.objects.using(job._state.db).only("id", "task", "status")
    children = list(family.filter(parent_id=job.pk).order_by("id")[: MOST_CHILDREN + 1])
    fine, share = GOOD | NEUTRAL, share_of(job.progress)
    return {
        "timeline": draw(job.created_at, spans, now, amended),
        "attempts": _attempt_rows(job, attempts),
        "unlisted": attempts[-1].number - 1 if len(attempts) == MOST_ATTEMPTS else 0,
        "shown_in_full": SHOWN_IN_FULL,
        # By the server's clock. It is negative if the lease has expired and no watchdog has reaped it yet.
        "lease_left": None if job.lease_until is None else in_words((job.lease_until - now).total_seconds()),
        "parent": family.filter(pk=job.parent_id).first() if job.parent_id else None,
        "children": children[:MOST_CHILDREN],
        "has_more_children": len(children) > MOST_CHILDREN,
        "most_children": MOST_CHILDREN,
        "due_in": due_shown(job, now),
        "is_past_error": job.status not in WITH_ERROR,
        # The attempt of the last error.
        "failed_attempt": next((one.number for one in attempts if one.outcome not in fine), None),
        "counted": job.attempts - job.refunds,
        "most": most_shown(job.max_attempts),
        "fingerprint": job.fingerprint or "",  # type: ignore[attr-defined]  # annotated, for dead letters
        "checkpoint": HIDDEN if job.progress and is_encrypted(job.sensitive) else _checkpoint_of(job.progress),
        "share_done": None if share is None else f"{share:.4f}",
    }


def _attempts_of(job: Job) -> list[Any]:
    """Return the latest attempts, without fields that may be long."""
    rows = (
        Attempt.objects.using(job._state.db)
        .filter(job=job)
        .defer("message", "traceback")
        .annotate(
            now=ClockTimestamp(),
            beginning=Left("message", MOST_SAID + 1, function="pg_catalog.left"),
            has_traceback=ExpressionWrapper(~Q(traceback=""), output_field=BooleanField()),
        )
    )
    return list(rows.order_by("-number")[:MOST_ATTEMPTS])


def _attempt_rows(job: Job, attempts: Sequence[Any]) -> list[dict[str, Any]]:
    """Return each attempt with its message and traceback, possibly shortened, the latest first."""
    latest = next((attempt.number for attempt in attempts if attempt.has_traceback), None)
    numbers = [one.number for place, one in enumerate(attempts) if place < SHOWN_IN_FULL or one.number == latest]
    rows = Attempt.objects.using(job._state.db).filter(job=job, number__in=numbers)
    full = {number: said for number, *said in rows.values_list("number", "message", "traceback")} if numbers else {}
    shown = []
    for attempt in attempts:
        message, traceback = full.get(attempt.number, (_cut(attempt.beginning), ""))
        # The latest traceback is open. Attempts that were put back later have none.
        flags = {"is_cut": attempt.has_traceback and not traceback, "is_open": attempt.number == latest}
        shown.append({"attempt": attempt, "message": message, "traceback": traceback, **flags})
    return shown


def _cut(message: str) -> str:
    return message if len(message) <= MOST_SAID else f"{message[:MOST_SAID]}…"


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


def _checkpoint_of(progress: Any) -> str:
    """Return the checkpoint without the progress."""
    saved = (
        {key: value for key, value in progress.items() if key not in ("done", "total")}
        if isinstance(progress, dict)
        else progress
    )
    return spelt(saved)[:MOST_SAVED] if saved else ""


def spelt(value: Any) -> str:
    """Return a value as JSON. A value that was written by hand may be nested too deeply."""
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except RecursionError:
        return UNREADABLE
