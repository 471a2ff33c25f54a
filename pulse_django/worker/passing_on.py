"""What wakes other workers, if this one was woken and has no room for all that there is."""

from __future__ import annotations

import time

from pulse_django.execution.notify import WakeUp

# Seconds, doubled each time as long as there is no room. While a fleet is busy as a whole, each notification would
# otherwise be passed on by all of its workers.
BETWEEN_PASSING_ON, MOST_BETWEEN_PASSING_ON = 0.2, 3.2


class PassingOn:
    """Keeps the widest notification that is to be passed on, and how often that may be."""

    def __init__(self) -> None:
        self.payload: str | None = None
        self.passed_on_at, self.between = float("-inf"), BETWEEN_PASSING_ON

    def add(self, payload: str | None) -> None:
        """Keep the one that wakes more workers: the one whose places come first."""
        if payload is None or self.payload is None:
            self.payload = payload or self.payload
        else:
            self.payload = min(payload, self.payload, key=lambda one: WakeUp.read(one).first)

    def due_in(self) -> float:
        """Return in how many seconds it may be sent; infinite if there is nothing to send."""
        if self.payload is None:
            return float("inf")
        return max(0.0, self.passed_on_at + self.between - time.monotonic())

    def taken(self) -> str:
        """Return what is to be sent now, and wait longer until the next time."""
        assert self.payload is not None  # noqa: S101 - for the type checker: ``due_in`` says so
        self.passed_on_at = time.monotonic()
        self.between = min(2 * self.between, MOST_BETWEEN_PASSING_ON)
        return self.payload

    def sent(self, payload: str) -> None:
        if self.payload == payload:
            self.payload = None

    def is_quiet(self) -> None:
        """Note that nothing is due here."""
        self.between = BETWEEN_PASSING_ON
