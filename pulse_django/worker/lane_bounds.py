"""From which instant on a claimer looks for jobs in each lane.

Jobs are claimed in the order in which they are due, so what was due before the last one claimed has been taken, most
likely, and only dead entries of the index are left of it. Not for certain: a job that a long transaction enqueued is
seen when later ones have been claimed. So a claimer looks behind its bounds now and then, and when it finds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from pulse_django.protocol.claim import NO_BOUNDS
from pulse_django.words.lanes import Lane
from pulse_django.words.leases import Claim

# Seconds for which a job behind the bound waits at most: while there is more work than slots, and while there is room.
BETWEEN_FULL_LOOKS, BETWEEN_FULL_LOOKS_WITH_ROOM = 10.0, 1.0
# What the way from the server's microseconds to a float and back may add.
ROUNDING = 0.000002
MOST_LANES = 10_000


class LaneBounds:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._since: dict[Lane, float] = {}
        self._clock = clock
        self._looked_at = float("-inf")  # behind the bounds
        self._is_bounded = False

    def of(self, lanes: Sequence[Lane]) -> Mapping[Lane, float]:
        """Return the bounds for a claim from these lanes: none if it is time for a full look."""
        now = self._clock()
        self._is_bounded = now - self._looked_at < BETWEEN_FULL_LOOKS and any(lane in self._since for lane in lanes)
        if self._is_bounded:
            return self._since
        self._looked_at = now
        return NO_BOUNDS

    def must_look_behind(self, found: int) -> bool:
        """Say whether to claim again without bounds, after a claim that found less than there was room for."""
        now = self._clock()
        if not self._is_bounded or (found and now - self._looked_at < BETWEEN_FULL_LOOKS_WITH_ROOM):
            return False
        self._looked_at = now
        return True

    def claimed(self, claims: Iterable[Claim]) -> None:
        """Raise the bounds to the last of these in each lane. Lanes with keys have none.

        Where some were behind their bound there may be more, as after the pause of a task: the next look is full, too.
        """
        if len(self._since) > MOST_LANES:
            self._since.clear()
        unkeyed = [(Lane(claim.queue, claim.priority), claim.due_epoch) for claim in claims if not claim.lane_key]
        if any(due + ROUNDING < self._since.get(lane, float("-inf")) for lane, due in unkeyed):
            self._looked_at = float("-inf")
        for lane, due in unkeyed:
            if due - ROUNDING > self._since.get(lane, float("-inf")):
                self._since[lane] = due - ROUNDING
