"""Parts of a worker, put together for tests that need no process."""

from __future__ import annotations

from collections.abc import Callable

from pulse_django.worker.guarded_connection import Line
from pulse_django.worker.in_flight import Hand
from pulse_django.worker.reporter import Reporter
from pulse_django.worker.run_events import Teller


def reporter_for(hand: Hand, slot_freed: Callable[[], None] = lambda: None) -> Reporter:
    """Return a reporter whose lines nobody reads."""
    return Reporter(Line("default", "reports"), hand, slot_freed, Teller())
