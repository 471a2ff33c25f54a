"""The vital signs on one screen."""

from __future__ import annotations

from datetime import timedelta

from pulse_django.fleet import history
from pulse_django.fleet.history import History
from pulse_django.fleet.snapshot import Health
from pulse_django.words.display import in_words
from pulse_django.words.vital_signs import (
    DEATH_TO_REQUEUE,
    ENQUEUE_TO_START,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    LEASE_ACQUISITION,
    LEASE_EXPIRATIONS,
    RECOVERY_REQUEUES,
    Histogram,
)

from .terminal import table

HOUR = timedelta(hours=1)


def eight_in_lines(health: Health, past: History) -> list[str]:
    """Lay the signs out as a table: name, value, since when."""
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
        ("conditions found", _found(past.conditions), "a minute ago"),
        ("death to requeue", _quantiles(past.histogram(DEATH_TO_REQUEUE)), "last 3 hours"),
    ]
    return [
        "",
        "Vital signs",
        *table(("sign", "value", ""), [(name, str(value), since) for name, value, since in rows]),
    ]


def _found(found: dict[str, int] | None) -> str:
    if found is None:
        return "not checked"
    return ", ".join(f"{name} {count}" for name, count in sorted(found.items())) or "none"


def _quantiles(took: Histogram) -> str:
    half, most = took.quantile(0.5), took.quantile(0.99)
    return "-" if half is None or most is None else f"p50 {in_words(half)}, p99 {in_words(most)} ({len(took)})"
