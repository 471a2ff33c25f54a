"""Parts of a worker, put together for tests that need no process."""

from __future__ import annotations

from collections.abc import Callable

from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.reporter import Reporter
from pulse_django.worker.run_events import RunEvents


def reporter_for(in_flight: InFlight, slot_freed: Callable[[], None] = lambda: None) -> Reporter:
    """Return a reporter whose lines nobody reads."""
    return Reporter(GuardedConnection("default", "reports"), in_flight, slot_freed, RunEvents())
