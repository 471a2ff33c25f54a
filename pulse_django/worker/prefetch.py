"""How many jobs a child claims beyond its free slots: more while handlers prove short, and none beside a long one."""

from __future__ import annotations

from collections.abc import Sequence

MOST_PREFETCHED = 400
# Seconds in which what was prefetched should have begun. Longer keeps work from idle workers; shorter makes small
# batches of short jobs.
HORIZON = 0.25
FIRST_PREFETCH = 8


class Prefetch:
    def __init__(self, slots: int) -> None:
        self.jobs = 0
        self._slots = slots
        self._mean = 0.0

    def learn(self, took: Sequence[float]) -> None:
        """Adapt to how long handlers took."""
        self._mean += (sum(took) / len(took) - self._mean) * 0.3
        if max(took) > HORIZON:
            self.jobs = 0
            return
        fitting = int(HORIZON * self._slots / max(self._mean, 1e-6))
        self.jobs = min(fitting, MOST_PREFETCHED, max(FIRST_PREFETCH, 2 * self.jobs))

    def slow_down(self) -> None:
        """A handler is taking long: claim no more than can begin at once."""
        self.jobs = 0
