"""Runs that wait for a slot. Several threads take from them, and each run is taken once."""

from __future__ import annotations

from collections import deque

from pulse_django.execution.run import Run


class RunQueue(deque[Run]):
    def next(self) -> Run | None:
        """Take the first; None: there is none, or another thread was quicker."""
        try:
            return self.popleft()
        except IndexError:
            return None

    def take_back(self) -> list[Run]:
        """Take all that have not begun."""
        return list(iter(self.next, None))
