"""Claim from lanes: from those for which no capability has a statement of its own, and from lanes with keys.

Slots are shared among lanes with keys, and lanes that can start nothing now are skipped.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from pulse_django.queue.capability import Bounds, Group, LaneClaim, LaneClaimer, installed
from pulse_django.queue.claim import NO_BOUNDS, Claims
from pulse_django.queue.database.lane_queries import MOST_KEYS
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import Counters
from pulse_django.queue.words.lanes import NOT_AGED, Lane, deal, in_jobs, in_slots, lane_of, rotation
from pulse_django.queue.words.leases import Claim, Identity

from .guarded_connection import GuardedConnection
from .in_flight import InFlight

Granted = tuple[float, Claims, int]  # when a claim was sent, its answer, and how many jobs it asked for

# Each lane is read from a lower bound of due times. Jobs are claimed in the order of their due times. So jobs that were
# due before the last claimed one are usually gone, and only their dead index entries are left. But a job of a long
# transaction becomes visible after later ones were claimed. So a claimer sometimes ignores its bounds, and also if it
# finds nothing.

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
            sent_at = time.monotonic()
            answer: Claims = self._database.call(
                self._database.jobs.claim, self._identity, limit=most, slots=self._in_flight.for_claim, lanes=lanes,
                turn=turn, since=bounds, takes=takes and Counter(takes) - claimed, aged=aged,
            )  # fmt: skip
            yield sent_at, answer, most
            self._bounds.claimed(answer)
            claims = Claims([*claims, *answer], is_left=answer.is_left)
            if bounds is NO_BOUNDS or len(claims) == limit or claims.is_left or not are_due:
                return claims
            if not self._bounds.must_look_behind(len(claims)):
                return claims
            bounds = NO_BOUNDS


# Lanes with keys.

# Seconds for which the counted leases of other processes are reused; this process knows its own. If longer, slots go to
# lanes that hold more by now. If shorter, each claim needs a count, which takes about as long as the claim.
HELD_KEPT = 0.2
# Seconds until a full limit is tried again, unless a run of this worker frees it. Other workers fill the slots that
# they free, so this is for runs that ended with their worker.
CLOSED_FOR = 1.0
# Seconds for which a claim of jobs with limits waits for more free slots, while jobs are short. If longer, slots stay
# idle during long runs. If shorter, each job needs its own claim.
GATHER_FOR = 0.005

NO_BOUND = sys.maxsize


class _Part(NamedTuple):
    claimer: LaneClaimer | None
    group: Group
    lanes: list[Lane]


class KeyedLanes:
    def __init__(self, database: GuardedConnection, identity: Identity, in_flight: InFlight, plain: PlainLanes) -> None:
        """``plain`` claims from lanes without a claimer."""
        self._database, self._in_flight, self._plain = database, in_flight, plain
        internals = [one.internals for one in installed()]
        self._claimers = [one.claimer(database, identity) for one in internals if one.claimer is not None]
        self._shares = [one.share_of for one in internals if one.share_of is not None]
        self._chunks = [one.jobs_a_slot for one in internals if one.jobs_a_slot is not None]
        self._cursors: dict[tuple[str, int], Lane] = {}
        self._held: Counter[Lane] = Counter()
        self._shut: set[Lane] = set()  # lanes with a shut gate
        self._held_at = float("-inf")
        self._closed: dict[Group, float] = {}  # until when a group can start nothing
        self._bounds: dict[Group, Bounds] = {}  # of groups whose jobs may be claimed before they have a slot
        self.wanted_slots: int | None = None  # how many free slots to wait for; another thread may read it
        self._gather_until: float | None = None
        self.refusals: Counters = {}  # by limit and reason; another thread may read it, so it is replaced

    @property
    def cursors(self) -> Collection[Lane]:
        """Return where the next look continues, for queues with more lanes than one look returns."""
        return self._cursors.values()

    def saw(self, lanes: Sequence[Lane]) -> None:
        """Note the lanes that a look returned."""
        self.wanted_slots = None
        self._cursors.clear()
        keyed = sorted(lane for lane in lanes if lane.key)
        for pair, group in groupby(keyed, key=lambda lane: (lane.queue, lane.priority)):
            found = list(group)
            if len(found) >= MOST_KEYS:
                self._cursors[pair] = random.choice(found)  # noqa: S311 - no secret

    def closed_for(self) -> float:
        """Return how long all known lanes stay closed. 0: neither a limit nor a lack of slots is the reason."""
        if self.wanted_slots is not None:  # free slots end the wait
            return CLOSED_FOR if self._gather_until is None else GATHER_FOR
        return max(0.0, min(self._closed.values(), default=0.0) - time.monotonic())

    def claim(
        self, limit: int, lanes: Sequence[Lane], turn: int, aged: Mapping[Lane, int] = NOT_AGED
    ) -> Generator[Granted, None, tuple[int, list[Lane]]]:
        """Claim from due lanes, and yield each answer. Return how many slots were taken, and lanes that may have more.

        The next claim counts on that the jobs of the last one have begun.
        """
        now = time.monotonic()
        freed = self._note_settled()
        self._closed = {
            group: until for group, until in self._closed.items() if until > now and freed.isdisjoint(group)
        }
        parts = [part for part in self._parts(lanes, turn, aged) if part.group not in self._closed]
        for claimer in {part.claimer for part in parts if part.claimer is not None}:
            claimer.prepare()
        if any(map(self._needs_slots, parts)):
            free = self._in_flight.free_slots
            if self._wait_for_slots(free, now):
                return 0, list(lanes)
            limit = min(limit, free)  # for all parts: prefetched jobs would take every slot
        self._gather_until = None
        self._count([lane for part in parts for lane in part.lanes], now)
        found, empty, self.wanted_slots = 0, set(self._shut), None
        for part in parts:
            if found >= limit:
                break
            if not (open_lanes := [lane for lane in part.lanes if lane not in self._shut]):
                continue
            jobs_a_slot = {lane: size for lane in open_lanes if (size := self._jobs_a_slot(lane))}
            takes = self._takes(part, open_lanes, limit - found, jobs_a_slot)
            if not takes:
                self.wanted_slots = 1  # chunks are not prefetched, nor more than a part of a limit
                continue
            free = self._in_flight.free_slots
            claims, exhausted = yield from self._claim_part(part, takes, turn, aged)
            taken = self._slots_of(claims, jobs_a_slot)
            found += taken
            empty |= exhausted
            for claim in claims:
                self._held[lane_of(claim)] += claim.options.weight
            if claims.is_left:  # lighter jobs of other lanes would take its slots
                self.wanted_slots = free + 1 - taken
                break
        return found, [lane for lane in lanes if lane not in empty]

    def _note_settled(self) -> set[str]:
        """Subtract settled runs from the counted leases. Return the names, as of limits, that claims may wait for."""
        settled = self._in_flight.settled_in_lanes()
        for lane, weight in settled.items():
            if lane in self._held:
                self._held[lane] = max(0, self._held[lane] - weight)
        return {name for lane in settled for name in self._owner_of(lane)[1]}

    def _weight(self, lane: Lane) -> float:
        for share_of in self._shares:
            return share_of(lane.key)
        return 1.0

    def _jobs_a_slot(self, lane: Lane) -> int | None:
        for jobs_a_slot in self._chunks:
            if size := jobs_a_slot(lane.key):
                return size
        return None

    def _owner_of(self, lane: Lane) -> tuple[LaneClaimer | None, Group]:
        """Return the claimer of a lane, and the names that its claims may wait for."""
        if lane.key:
            for claimer in self._claimers:
                if group := claimer.group_of(lane):
                    return claimer, group
        return None, ()

    def _parts(self, lanes: Sequence[Lane], turn: int, aged: Mapping[Lane, int]) -> Iterator[_Part]:
        """Split lanes by priority and group. The order changes with each turn."""
        for _, equals in groupby(rotation(lanes, turn, aged), key=lambda lane: lane.priority + aged.get(lane, 0)):
            parts: dict[tuple[LaneClaimer | None, Group], list[Lane]] = {}
            for lane in equals:
                parts.setdefault(self._owner_of(lane), []).append(lane)
            yield from (_Part(*owner, of_owner) for owner, of_owner in parts.items())

    def _needs_slots(self, part: _Part) -> bool:
        """Return whether its jobs need a free slot to be claimed: a lease that waits for one occupies its limit.

        Short jobs wait only briefly, so they may be claimed before, if starts are not counted.
        """
        flight = self._in_flight
        may_wait = flight.jobs_prove_short and part.group in self._bounds and flight.claimers > 0
        return part.claimer is not None and not may_wait

    def _wait_for_slots(self, free: int, now: float) -> bool:
        """Note how many slots are wanted. Return whether to wait for a free slot, or a moment for several."""
        wanted = self._in_flight.worthwhile_slots
        if free >= wanted:
            return False
        if free < 1:
            self.wanted_slots, self._gather_until = 1, None
            return True
        if self._gather_until is None:
            self._gather_until = now + GATHER_FOR
        self.wanted_slots = wanted
        return now < self._gather_until

    def _slots_of(self, claims: Sequence[Claim], jobs_a_slot: Mapping[Lane, int]) -> int:
        chunked = Counter(lane for claim in claims if (lane := lane_of(claim)) in jobs_a_slot)
        single = sum(self._in_flight.slots_of(claim) for claim in claims if lane_of(claim) not in jobs_a_slot)
        return single + sum(in_slots(chunked, jobs_a_slot).values())

    def _takes(
        self, part: _Part, lanes: Sequence[Lane], slots: int, jobs_a_slot: Mapping[Lane, int]
    ) -> Mapping[Lane, int]:
        """Share slots among lanes. Return how many jobs to claim from each."""
        flight, are_costly, weight = self._in_flight, part.claimer is not None, self._weight
        if not jobs_a_slot:
            bounds = self._bounds.get(part.group)
            if bounds is None or flight.claimers <= 1:
                return deal(lanes, slots, held=self._held, weight=weight, are_costly=are_costly)
            part_of_mine = _PartOfLimit(bounds, flight.claimers, flight.free_slots, flight.held_in_lanes())
            slots = min(slots, part_of_mine.of_group(part.group, lambda lane: self._owner_of(lane)[1]))
            dealt = deal(lanes, slots, held=self._held, weight=weight, are_costly=are_costly)
            return {lane: most for lane, take in dealt.items() if (most := min(take, part_of_mine.of_lane(lane)))}
        takes = deal(lanes, slots, held=in_slots(self._held, jobs_a_slot), weight=weight, are_costly=are_costly)
        return in_jobs(
            takes, jobs_a_slot, gathered=flight.gathering, free=flight.free_slots, most=flight.most_jobs(),
            more_soon=flight.has_room_soon,
        )  # fmt: skip

    def _claim_part(
        self, part: _Part, takes: Mapping[Lane, int], turn: int, aged: Mapping[Lane, int]
    ) -> Generator[Granted, None, tuple[Claims, set[Lane]]]:
        """Claim from lanes of one group. Return the claims, and the lanes with fewer jobs than allowed."""
        chosen, limit = [lane for lane in part.lanes if lane in takes], sum(takes.values())
        if part.claimer is None:
            dealt = yield from self._plain.claim(limit, chosen, turn, aged, takes)
            return dealt, set() if dealt.is_left else _short(takes, dealt)
        sent_at = time.monotonic()
        answer = part.claimer.claim(part.group, chosen, takes, limit=limit, slots=self._in_flight.for_claim)
        yield sent_at, (claims := answer.claims), limit
        exhausted = _short(answer.allowed, claims)
        if answer.may_wait is not None:
            self._bounds[part.group] = answer.may_wait
        elif self._bounds.pop(part.group, None) is not None:  # from now on; the claim may only have lacked slots
            return claims, exhausted
        if not claims and not exhausted and not claims.is_left:
            self._close(part.group, answer)
        return claims, exhausted

    def _close(self, group: Group, answer: LaneClaim) -> None:
        pause = CLOSED_FOR * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
        if answer.shut_for is not None:
            pause = min(pause, max(0.001, answer.shut_for))
        if answer.refusal is not None:
            limiter, reason = answer.refusal
            self.refusals = counters.added(self.refusals, {limiter: {reason: 1}})
        self._closed[group] = time.monotonic() + pause

    def _count(self, lanes: Sequence[Lane], now: float) -> None:
        """Count the leases of each lane in the fleet, and find shut lanes, unless this was just done."""
        if now - self._held_at <= HELD_KEPT and all(lane in self._held for lane in lanes):
            return
        use = self._database.call(self._database.jobs.use, lanes) if lanes else {}
        self._held = Counter({lane: one.held for lane, one in use.items()})
        self._held_at = now
        self._shut = {lane for lane, one in use.items() if not one.is_open}
        # To look again when a gate opens. No group has a name with a line feed.
        opens_in = {lane: CLOSED_FOR if (soon := use[lane].opens_in) is None else soon for lane in self._shut}
        self._closed |= {
            (f"{lane.queue}\n{lane.key}",): now + max(0.001, min(CLOSED_FOR, soon)) for lane, soon in opens_in.items()
        }


class _PartOfLimit(NamedTuple):
    """The part of a limit that a process may hold while its jobs wait for slots. The rest is for other processes.

    Of each key it may hold one, because most keys have jobs in only one process.
    """

    bounds: Bounds
    claimers: int
    free: int
    mine: Counter[Lane]  # leases of this process

    def of_group(self, group: Group, group_of: Callable[[Lane], Group]) -> int:
        if self.bounds.of_group is None:
            return NO_BOUND
        held = sum(weight for lane, weight in self.mine.items() if not set(group).isdisjoint(group_of(lane)))
        return max(0, self.free, self.bounds.of_group // self.claimers - held)

    def of_lane(self, lane: Lane) -> int:
        if self.bounds.of_lane is None:
            return NO_BOUND
        return max(0, self.free, max(1, self.bounds.of_lane // self.claimers) - self.mine[lane])


def _short(most: Mapping[Lane, int], claims: Sequence[Claim]) -> set[Lane]:
    """Return the lanes that gave fewer jobs than allowed."""
    got = Counter(lane_of(claim) for claim in claims)
    return {lane for lane, take in most.items() if got[lane] < take}
