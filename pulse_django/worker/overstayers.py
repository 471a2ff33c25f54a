"""Jobs whose handlers go on past their deadlines, in memory that all children of a worker share.

A thread past its deadline cannot be stopped, and its job is retried. The retry must not begin in the same worker while
the thread is still at work. Each child writes its own part; all of them read the whole.
"""

from __future__ import annotations

import mmap

_FREE = 0


class Overstayers:
    """Made by the keeper before it has children, so that they inherit it."""

    def __init__(self, children: int = 1, slots: int = 24) -> None:
        self._slots = slots
        self._words = memoryview(mmap.mmap(-1, children * slots * 8)).cast("q")

    def __contains__(self, job_id: int) -> bool:
        return job_id in self._words.tolist()

    def add(self, child: int, job_id: int) -> None:
        for position in self._part_of(child):
            if self._words[position] == _FREE:
                self._words[position] = job_id
                return

    def remove(self, child: int, job_id: int) -> None:
        for position in self._part_of(child):
            if self._words[position] == job_id:
                self._words[position] = _FREE
                return

    def clear(self, child: int) -> None:
        """Forget what a child wrote that is gone, and its threads with it."""
        for position in self._part_of(child):
            self._words[position] = _FREE

    def _part_of(self, child: int) -> range:
        return range(child * self._slots, (child + 1) * self._slots)
