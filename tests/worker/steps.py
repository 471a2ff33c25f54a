"""Parts of a worker, put together for tests that need no process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pulse_django.conf import PulseSettings
from pulse_django.queue.words.leases import Identity
from pulse_django.worker.claimer import Claimer
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.reporter import Reporter
from pulse_django.worker.run_events import RunEvents
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.worker_options import WorkerOptions


def claimer_for(
    slots: int = 8,
    start: Callable[[Any], Any] = lambda runs: None,
    found_work: Callable[[str, bool], Any] = lambda queue, more: None,
    max_jobs: int = 0,
) -> Claimer:
    """Return a claimer with its runs in ``_in_flight``."""
    identity = Identity("w")
    in_flight = InFlight(SharedLeases(f"{identity.name}:{identity.boot_id}:"), "default", slots, max_jobs)
    in_flight._shared_leases.note_standing(0, 1)
    options, database = WorkerOptions.of(PulseSettings(), "w", {}), GuardedConnection("default", "claims")
    return Claimer(options, database, identity, in_flight, start, found_work, lambda: None)


def reporter_for(in_flight: InFlight, slot_freed: Callable[[], None] = lambda: None) -> Reporter:
    """Return a reporter whose lines nobody reads."""
    return Reporter(GuardedConnection("default", "reports"), in_flight, slot_freed, RunEvents())
