"""The metrics of one worker, from its memory, without the database."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from pulse_django.metrics.minute_stats import counted_by_workers
from pulse_django.metrics.vital_signs import (
    DATABASE_ERRORS,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    HEARTBEATS,
    IN_FLIGHT,
    LIMIT_REFUSALS,
    PREFETCHED,
    SLOTS,
    STUCK_SLOTS,
)
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import SignKind, VitalSign

from . import exposition
from .readings import Reading

CHILDREN = VitalSign(
    name="children",
    kind=SignKind.GAUGE,
    means="Number of processes of this worker that are ready to run jobs.",
    to_do="If it stays below --processes, read the worker's log for the reason.",
)
GAUGES = (SLOTS, IN_FLIGHT, STUCK_SLOTS, PREFETCHED, CHILDREN)
COUNTED = (HEARTBEATS, HEARTBEAT_DELAY, FENCING_REJECTIONS, LIMIT_REFUSALS, DATABASE_ERRORS)


def exposed(presence: Presence, children: int) -> str:
    """Return the metrics of this worker in the format of Prometheus."""
    signs = {sign: replace(sign, means=f"This worker only. {sign.means}") for sign in (*GAUGES, *COUNTED)}
    shown = [replace(reading, sign=signs[reading.sign]) for reading in readings(presence, children)]
    return exposition.text(signs.values(), shown, prefix="pulse_worker_")


def readings(presence: Presence, children: int) -> list[Reading]:
    now: dict[VitalSign, Any] = {
        SLOTS: presence.slots,
        IN_FLIGHT: presence.in_flight,
        STUCK_SLOTS: presence.stuck_slots,
        PREFETCHED: presence.vitals["prefetched"],
        CHILDREN: children,
    }
    since_start = counted_by_workers({"": presence.vitals}, {})
    counted = [Reading(sign, labels, value) for sign in COUNTED for labels, value in counters.leaves(since_start, sign)]
    return [*(Reading(sign, (), value) for sign, value in now.items()), *counted]
