"""Jobs whose handlers go on past their deadlines, in memory that all children of a worker share.

A thread past its deadline cannot be stopped, and its job is retried. The retry must not begin in the same worker while
the thread is still at work. Each child writes its own part; all of them read the whole.
"""

from __future__ import annotations

import mmap

_FREE = 0
CAPACITY = 2_048  # jobs of one child: as many as it has leases, because a handler may have those of a whole chunk


class Overstayers:
    """Made by the keeper before it has children, so that they inherit it."""

    def __init__(self, children: int = 1, capacity: int = CAPACITY) -> None:
        self._children, self._size = children, 1 + capacity  # how many there are stands in front
        self._words = memoryview(mmap.mmap(-1, children * self._size * 8)).cast("q")

    def __contains__(self, job_id: int) -> bool:
        return any(
            self._words[child * self._size] and job_id in self._words[self._part_of(child)].tolist()
            for child in range(self._children)
        )

    def add(self, child: int, job_id: int) -> None:
        if self._replace(child, _FREE, job_id):
            self._words[child * self._size] += 1

    def remove(self, child: int, job_id: int) -> None:
        if self._replace(child, job_id, _FREE):
            self._words[child * self._size] -= 1

    def clear(self, child: int) -> None:
        """Forget what a child wrote that is gone, and its threads with it."""
        for position in range(child * self._size, (child + 1) * self._size):
            self._words[position] = _FREE

    def _replace(self, child: int, old: int, new: int) -> bool:
        part = self._words[self._part_of(child)]
        try:
            part[part.tolist().index(old)] = new
        except ValueError:  # it is not there
            return False
        return True

    def _part_of(self, child: int) -> slice:
        return slice(child * self._size + 1, (child + 1) * self._size)
