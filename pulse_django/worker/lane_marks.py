"""The smallest tokens that the runs of a limit can have, so that counting them does not read what ended long ago."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

# A scope's mark is believed so many seconds after its lock was first held: a claim that began before the scope had a
# limit, and took no lock, has ended by then.
SETTLES_IN = 15.0
MOST_SCOPES = 10_000


class LaneMarks:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: dict[tuple[str | None, str], float] = {}  # by the limiter's version and scope: when first locked
        self._marks: dict[str, int] = {}

    @property
    def known(self) -> Mapping[str, int]:
        return self._marks

    def learn(self, version: str | None, marks: Mapping[str, int]) -> None:
        """Take over what a claim has counted, when the row of its limiter had that version."""
        now = self._clock()
        if len(self._since) > MOST_SCOPES:
            self._since.clear()
            self._marks.clear()
        for scope, mark in marks.items():
            if now - self._since.setdefault((version, scope), now) > SETTLES_IN:
                self._marks[scope] = mark
