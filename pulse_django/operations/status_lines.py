"""The output of ``pulse_status`` and ``pulse_explain``, which fits on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pulse_django.health.conditions import Verdict
from pulse_django.health.explanation import Explanation
from pulse_django.health.snapshot import Health, QueueFacts, WorkerFacts
from pulse_django.metrics import history
from pulse_django.metrics.history import History
from pulse_django.metrics.vital_signs import (
    DEATH_TO_REQUEUE,
    ENQUEUE_TO_START,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    LEASE_ACQUISITION,
    LEASE_EXPIRATIONS,
    RECOVERY_REQUEUES,
)
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.display import in_words

from .preview import LATEST, Matching
from .terminal import table

MOST_ROWS = 20  # of a table; --json has all
_OF_QUEUES = ("queue", "due", "later", "running", "oldest", "dead", "in/min", "done", "failed", "died", "")


def health_in_lines(health: Health, verdict: Verdict, *, width: int | None = None) -> list[str]:
    """Return the verdict, the queues and the workers. ``width`` is the maximum width of the tables."""
    lines = _found(verdict)
    if health.statuses:
        counts = (f"{'~' if one.is_estimate else ''}{one.jobs} {one.status}" for one in health.statuses)
        lines += ["", "Jobs: " + ", ".join(counts)]
    lines += _section("Queues", _OF_QUEUES, [_queue(queue) for queue in health.queues], width)
    lines += _section(
        "Workers",
        ("worker", "host", "slots", "in flight", "stuck", "last heartbeat", "versions"),
        [_worker(worker) for worker in health.workers],
        width,
    )
    if health.statuses:  # a glance does not read ended jobs
        dead = [(letter.id, letter.task, _ago(letter.age), letter.error) for letter in health.dead_letters]
        lines += _section("Latest dead letters", ("id", "task", "died", "error"), dead, width)
    return lines


def _found(verdict: Verdict) -> list[str]:
    if not verdict.found:
        return ["No problems found."]
    title = "No problems found. Warnings:" if verdict.is_well else "Problems:"
    return [title, *(f"  ! {one.condition.name} ({one.condition.severity}): {one.says}" for one in verdict.found)]


def matching_in_lines(matching: Matching) -> list[str]:
    if not matching.kinds:
        lines = ["No jobs match."]
    else:
        counts = [(kind.jobs, kind.status, kind.task) for kind in matching.kinds]
        lines = _section("Matching jobs", ("jobs", "status", "task"), counts)[1:]
        found = [
            (job.id, job.status, job.queue, job.task, job.attempts, _ago(job.age), job.error) for job in matching.newest
        ]
        lines += _section("Newest", ("id", "status", "queue", "task", "attempts", "created", "error"), found)
    if matching.is_partial:
        lines.append(f"Only the latest {LATEST} COMPLETED and CANCELLED jobs were searched.")
    return lines


def _section(
    title: str, headers: tuple[str, ...], rows: Sequence[tuple[object, ...]], width: int | None = None
) -> list[str]:
    if not rows:
        return ["", f"{title}: none"]
    more = [f"  and {len(rows) - MOST_ROWS} more: see --json"] if len(rows) > MOST_ROWS else []
    return ["", title, *table(headers, rows[:MOST_ROWS], within=width), *more]


def _queue(queue: QueueFacts) -> tuple[object, ...]:
    oldest = in_words(queue.oldest_due.total_seconds()) if queue.oldest_due is not None else "-"
    paused = ""
    if queue.is_paused:
        until = f" until {queue.paused_until.isoformat(' ', 'seconds')}" if queue.paused_until else ""
        paused = f"PAUSED{until}{': ' if queue.pause_reason else ''}{queue.pause_reason}"
    names = ("enqueued", "succeeded", "failed", "died")
    rates = [f"{getattr(queue.per_minute, name):.0f}" if queue.per_minute else "-" for name in names]
    return queue.name, queue.due, queue.later, queue.running, oldest, queue.dead_in_words, *rates, paused


def _worker(worker: WorkerFacts) -> tuple[object, ...]:
    gone = " (LOST)" if worker.is_lost else " (stopped)" if worker.has_stopped else ""
    beat = _ago(worker.last_beat) + gone
    versions = ", ".join(f"{name} {version}" for name, version in sorted(worker.versions.items()))
    return worker.name, worker.host, worker.slots, worker.in_flight, worker.stuck_slots, beat, versions


def _ago(age: timedelta) -> str:
    return f"{in_words(age.total_seconds())} ago"


# The vital signs.


HOUR = timedelta(hours=1)


def eight_in_lines(health: Health, past: History) -> list[str]:
    """Return the vital signs as a table with name, value and period."""
    if past.latest is None:
        return ["", "Vital signs: nothing was recorded in the last minutes"]
    success = past.success_of_beats(HOUR)
    counts = (("lease expirations", LEASE_EXPIRATIONS), ("recovery requeues", RECOVERY_REQUEUES),
              ("fencing rejections", FENCING_REJECTIONS))  # fmt: skip
    rows: list[tuple[object, ...]] = [
        ("active leases", sum(queue.running for queue in health.queues), "now"),
        ("due to claimed", _quantiles(past.histogram(LEASE_ACQUISITION, HOUR)), "last hour"),
        ("enqueue to start", _quantiles(past.histogram(ENQUEUE_TO_START, HOUR)), "last hour"),
        ("heartbeats answered", "-" if success is None else f"{success:.2%}", "last hour"),
        ("heartbeat delay", _quantiles(past.histogram(HEARTBEAT_DELAY, HOUR)), "last hour"),
        *((name, past.total(history.counted(sign), HOUR) or 0, "last hour") for name, sign in counts),
        ("conditions found", _reading(past.conditions), "a minute ago"),
        ("death to requeue", _quantiles(past.histogram(DEATH_TO_REQUEUE)), "last 3 hours"),
    ]
    return [
        "",
        "Vital signs",
        *table(("sign", "value", ""), [(name, str(value), since) for name, value, since in rows]),
    ]


def _reading(found: dict[str, int] | None) -> str:
    if found is None:
        return "not checked"
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "none"


def _quantiles(took: Histogram) -> str:
    half, most = took.quantile(0.5), took.quantile(0.99)
    return "-" if half is None or most is None else f"p50 {in_words(half)}, p99 {in_words(most)} ({len(took)})"


# An explanation as lines of a terminal.


def explanation_in_lines(explanation: Explanation) -> list[str]:
    lines = [f"Job {explanation.job_id}: {explanation.status.value}"]
    lines += [f"  {place}. {reason.sentence}" for place, reason in enumerate(explanation.reasons, 1)]
    if explanation.position is not None:
        lines.append(f"Jobs before it: {explanation.place}")
        lines.append(f"Starts in: {' to '.join(explanation.span) or 'not known'}")
    return lines
