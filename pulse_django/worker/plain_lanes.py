"""Claim from lanes for which no capability has a statement of its own.

Each lane is read from a lower bound of due times. Jobs are claimed in the order of their due times. So jobs that were
due before the last claimed one are usually gone, and only their dead index entries are left. But a job of a long
transaction becomes visible after later ones were claimed. So a claimer sometimes ignores its bounds, and also if it
finds nothing.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

from pulse_django.queue.claim import NO_BOUNDS, Claims
from pulse_django.queue.words.lanes import NOT_AGED, Lane, lane_of
from pulse_django.queue.words.leases import Claim, Identity

from .guarded_connection import GuardedConnection
from .in_flight import InFlight

Granted = tuple[Claims, int]  # the answer of one claim, and how many jobs it asked for

# The longest wait, in seconds, of a job before the bound: with more jobs than slots, and with free slots.
BETWEEN_FULL_LOOKS, BETWEEN_FULL_LOOKS_WITH_ROOM = 10.0, 1.0
# The rounding error of microseconds that are converted to a float and back.
ROUNDING = 0.000002
MOST_LANES = 10_000


class LaneBounds:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._since: dict[Lane, float] = {}
        self._clock = clock
        self._looked_at = float("-inf")  # without bounds
        self._is_bounded = False

    def of(self, lanes: Sequence[Lane]) -> Mapping[Lane, float]:
        """Return the bounds for a claim from these lanes, or none if a full look is due."""
        now = self._clock()
        self._is_bounded = now - self._looked_at < BETWEEN_FULL_LOOKS and any(lane in self._since for lane in lanes)
        if self._is_bounded:
            return self._since
        self._looked_at = now
        return NO_BOUNDS

    def must_look_behind(self, found: int) -> bool:
        """Return whether to claim again without bounds, after a claim that did not fill the slots."""
        now = self._clock()
        if not self._is_bounded or (found and now - self._looked_at < BETWEEN_FULL_LOOKS_WITH_ROOM):
            return False
        self._looked_at = now
        return True

    def claimed(self, claims: Iterable[Claim]) -> None:
        """Raise the bound of each lane to its last claimed job. Lanes with keys have no bounds.

        If some jobs were before their bound, as after the pause of a task, the next look is full, too.
        """
        if len(self._since) > MOST_LANES:
            self._since.clear()
        unkeyed = [(Lane(claim.queue, claim.priority), claim.due_epoch) for claim in claims if not claim.lane_key]
        if any(due + ROUNDING < self._since.get(lane, float("-inf")) for lane, due in unkeyed):
            self._looked_at = float("-inf")
        for lane, due in unkeyed:
            if due - ROUNDING > self._since.get(lane, float("-inf")):
                self._since[lane] = due - ROUNDING


class PlainLanes:
    def __init__(self, database: GuardedConnection, identity: Identity, in_flight: InFlight) -> None:
        self._database, self._identity, self._in_flight = database, identity, in_flight
        self._bounds = LaneBounds()

    def claim(
        self,
        limit: int,
        lanes: Sequence[Lane],
        turn: int,
        aged: Mapping[Lane, int] = NOT_AGED,
        takes: Mapping[Lane, int] | None = None,
        *,
        are_due: bool = True,
    ) -> Generator[Granted, None, Claims]:
        """Yield the answers of one claim or two, and return all claims. ``takes``: so many jobs from each lane.

        ``are_due``: the lanes are known to have due jobs, so it looks behind their bounds if they gave too few.
        """
        claims, bounds = Claims(), self._bounds.of(lanes)
        while True:
            most, claimed = limit - len(claims), Counter(map(lane_of, claims))
            answer: Claims = self._database.call(
                self._database.jobs.claim, self._identity, limit=most, slots=self._in_flight.for_claim, lanes=lanes,
                turn=turn, since=bounds, takes=takes and Counter(takes) - claimed, aged=aged,
            )  # fmt: skip
            yield answer, most
            self._bounds.claimed(answer)
            claims = Claims([*claims, *answer], is_left=answer.is_left)
            if bounds is NO_BOUNDS or len(claims) == limit or claims.is_left or not are_due:
                return claims
            if not self._bounds.must_look_behind(len(claims)):
                return claims
            bounds = NO_BOUNDS
