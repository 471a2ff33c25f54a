"""Claims from lanes with keys: deals the slots among them, and leaves limits alone that allow nothing now."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import groupby

from pulse_django import conf
from pulse_django.execution.lane_keys import chunk_of_lane, declared_limits, limiters_of_claim
from pulse_django.models import Limiter
from pulse_django.protocol.claim import Claims
from pulse_django.protocol.claim_limited import LimitedClaim
from pulse_django.protocol.declarations import scope_of_code
from pulse_django.store.lane_queries import MOST_KEYS
from pulse_django.words import counters
from pulse_django.words.counters import Counters
from pulse_django.words.lanes import NOT_AGED, Lane, deal, in_jobs, in_slots, lane_of, rotation
from pulse_django.words.leases import Claim, Identity
from pulse_django.words.limiting import key_of, limiter_of_queue

from .guarded_connection import GuardedConnection
from .in_flight import InFlight

# Seconds for which the leases that other processes hold are taken for current; this process knows its own. Longer deals
# slots to lanes that hold more by now; shorter asks for each claim, which takes about as long as the claim.
HELD_KEPT = 0.2
# Seconds until a limit that allows nothing is tried again, unless a run of this worker frees it. Other workers fill
# what they free, so this is for runs that ended with their worker.
CLOSED_FOR = 1.0
# Seconds for which a claim of jobs with limits waits for more free slots, while jobs prove short. Longer leaves slots
# idle beside long runs; shorter asks for each job alone.
GATHER_FOR = 0.005
# Seconds until a lock that another claimer holds is tried again. It is held for the time of a statement.
CONTENDED_FOR = (0.001, 0.004)

Claiming = Callable[[int, Sequence[Lane], Mapping[Lane, int]], Claims]
Limits = tuple[str, ...]  # the names of those that a claim keeps
Granted = Callable[[Callable[[], Claims], int], Claims]


class KeyedLanes:
    def __init__(
        self,
        database: GuardedConnection,
        identity: Identity,
        in_flight: InFlight,
        claim_dealt: Claiming,
        granted: Granted,
    ) -> None:
        """``claim_dealt`` claims from lanes without limits, and ``granted`` starts what any other claim brings."""
        self._database, self._identity, self._in_flight = database, identity, in_flight
        self._claim_dealt, self._granted = claim_dealt, granted
        self._cursors: dict[tuple[str, int], Lane] = {}
        self._held: Counter[Lane] = Counter()
        self._shut: set[Lane] = set()  # their keys are paused
        self._held_at = float("-inf")
        self._closed: dict[Limits, float] = {}  # until when they allow nothing
        self.wanted_slots: int | None = None  # so many free ones are waited for; another thread may read it
        self._gather_until: float | None = None
        self._marks = LaneMarks()
        self.refusals: Counters = {}  # by limit and reason; another thread may read it, so it is replaced
        self._are_declared = False  # the limits of the code that this process has loaded

    @property
    def cursors(self) -> Collection[Lane]:
        """Where the next look goes on, of queues that have more lanes than a look brings."""
        return self._cursors.values()

    def saw(self, lanes: Sequence[Lane]) -> None:
        """Note what a look brought."""
        self.wanted_slots = None
        self._cursors.clear()
        keyed = sorted(lane for lane in lanes if lane.key)
        for pair, group in groupby(keyed, key=lambda lane: (lane.queue, lane.priority)):
            found = list(group)
            if len(found) >= MOST_KEYS:
                self._cursors[pair] = random.choice(found)  # noqa: S311 - no secret

    def closed_for(self) -> float:
        """Return for how long all that was met is closed; 0 if neither a limit nor a lack of slots is the reason."""
        if self.wanted_slots is not None:  # slots that become free end the wait
            return CLOSED_FOR if self._gather_until is None else GATHER_FOR
        return max(0.0, min(self._closed.values(), default=0.0) - time.monotonic())

    def claim(
        self, limit: int, lanes: Sequence[Lane], turn: int, aged: Mapping[Lane, int] = NOT_AGED
    ) -> tuple[int, list[Lane]]:
        """Claim from lanes that were due. Return how many slots are taken, and which lanes may have more."""
        now = time.monotonic()
        freed = self._note_settled()
        self._closed = {
            limits: until for limits, until in self._closed.items() if until > now and freed.isdisjoint(limits)
        }
        parts = [part for part in _parts(lanes, turn, aged) if _limits_of(part[0]) not in self._closed]
        if any(_limits_of(part[0]) for part in parts):
            self._declare()
            free = self._in_flight.free_slots
            if self._wait_for_slots(free, now):
                return 0, list(lanes)
            limit = min(limit, free)  # a lease that waits for a slot would occupy the limit
        self._gather_until = None
        self._count([lane for part in parts for lane in part], now)
        found, empty, self.wanted_slots = 0, set(self._shut), None
        for part in ([lane for lane in part if lane not in self._shut] for part in parts):
            if found >= limit:
                break
            if not part:
                continue
            jobs_a_slot = {lane: size for lane in part if (size := chunk_of_lane(lane.key))}
            takes = self._takes(part, limit - found, jobs_a_slot)
            if not takes:
                self.wanted_slots = 1  # a chunk may not take what is prefetched beyond the slots
                continue
            free = self._in_flight.free_slots
            claims, exhausted = self._claim_part(sum(takes.values()), part, takes)
            taken = self._slots_of(claims, jobs_a_slot)
            found += taken
            empty |= exhausted
            for claim in claims:
                self._held[lane_of(claim)] += claim.options.weight
            if claims.is_left:  # lighter jobs of the other lanes would take the slots that it waits for
                self.wanted_slots = free + 1 - taken
                break
        return found, [lane for lane in lanes if lane not in empty]

    def _note_settled(self) -> set[str]:
        """Count what this process has settled as no lease any more. Return the limits of which that was."""
        settled = self._in_flight.settled_in_lanes()
        for lane, weight in settled.items():
            if lane in self._held:
                self._held[lane] = max(0, self._held[lane] - weight)
        return {limit for lane in settled for limit in _limits_of(lane)}

    def _wait_for_slots(self, free: int, now: float) -> bool:
        """Note how many slots are wanted. Return whether to wait: until one is free, or a moment for several."""
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

    def _takes(self, part: Sequence[Lane], slots: int, jobs_a_slot: Mapping[Lane, int]) -> Mapping[Lane, int]:
        """Deal slots to lanes. Return how many jobs of each to claim for them."""
        if not jobs_a_slot:
            return deal(part, slots, held=self._held, weight=_weight)
        takes, flight = deal(part, slots, held=in_slots(self._held, jobs_a_slot), weight=_weight), self._in_flight
        return in_jobs(
            takes, jobs_a_slot, gathered=flight.gathering, free=flight.free_slots, most=flight.most_jobs(),
            more_soon=flight.has_room_soon,
        )  # fmt: skip

    def _claim_part(self, limit: int, part: Sequence[Lane], takes: Mapping[Lane, int]) -> tuple[Claims, set[Lane]]:
        """Claim from lanes with the same limits, or none. Return which had fewer jobs than they might give."""
        chosen = [lane for lane in part if lane in takes]
        limits = _limits_of(chosen[0])
        if not limits:
            dealt = self._claim_dealt(limit, chosen, takes)
            return dealt, set() if dealt.is_left else _short(takes, dealt)
        whole = limiter_of_queue(chosen[0].queue)
        limiter, queue = "" if limits[0] == whole else limits[0], chosen[0].queue if whole in limits else None
        answer = LimitedClaim(Claims())

        def claim() -> Claims:
            nonlocal answer
            answer = self._database.call(
                self._database.jobs.claim_limited, self._identity, limiter, chosen, takes, limit=limit,
                slots=self._in_flight.for_claim, queue=queue, marks=self._marks.known,
            )  # fmt: skip
            claims: Claims = answer.claims
            return claims

        claims = self._granted(claim, limit)
        self._marks.learn(answer.version, answer.marks)
        exhausted = _short(answer.allowed, claims)
        if not claims and not exhausted and not claims.is_left:
            self._close(limits, answer)
        return claims, exhausted

    def _declare(self) -> None:
        """Write down limits that are new, before the first claim. Those that changed are written by the keeper."""
        if self._are_declared:
            return
        limiters = Limiter.objects.db_manager(self._database.alias)
        if limits := declared_limits():
            self._database.call(limiters.declare_new, scope_of_code(), limits)
        self._are_declared = True

    def _close(self, limits: Limits, answer: LimitedClaim) -> None:
        pause = CLOSED_FOR * random.uniform(0.8, 1.0)  # noqa: S311 - no secret
        if answer.is_contended:
            pause = random.uniform(*CONTENDED_FOR)  # noqa: S311 - no secret
        elif answer.due_in is not None:
            pause = min(pause, max(0.001, answer.due_in))
        if answer.refusal is not None:
            limiter, reason = answer.refusal
            self.refusals = counters.added(self.refusals, {limiter: {reason: 1}})
        self._closed[limits] = time.monotonic() + pause

    def _count(self, lanes: Sequence[Lane], now: float) -> None:
        """Find out how many leases each lane holds in the fleet, and which are shut, unless it was just asked."""
        if now - self._held_at <= HELD_KEPT and all(lane in self._held for lane in lanes):
            return
        use = self._database.call(self._database.jobs.use, lanes) if lanes else {}
        self._held = Counter({lane: one.held for lane, one in use.items()})
        self._held_at = now
        self._shut = {lane for lane, one in use.items() if not one.is_open}
        # Names that no limit has: to look again then.
        self._closed |= {(lane.key,): now + CLOSED_FOR for lane in self._shut}


def _weight(lane: Lane) -> float:
    return conf.current().share_weights.get(key_of(lane.key) or "", 1.0)


def _parts(lanes: Sequence[Lane], turn: int, aged: Mapping[Lane, int]) -> Iterator[list[Lane]]:
    """Cut lanes into those of one priority that have the same limits, or none. Which comes first changes each turn."""
    for _, equals in groupby(rotation(lanes, turn, aged), key=lambda lane: lane.priority + aged.get(lane, 0)):
        by_limits: dict[Limits, list[Lane]] = {}
        for lane in equals:
            by_limits.setdefault(_limits_of(lane), []).append(lane)
        yield from by_limits.values()


def _limits_of(lane: Lane) -> Limits:
    return limiters_of_claim(lane.queue, lane.key)


def _short(most: Mapping[Lane, int], claims: Sequence[Claim]) -> set[Lane]:
    """Return the lanes that gave fewer jobs than they might have."""
    got = Counter(lane_of(claim) for claim in claims)
    return {lane for lane, take in most.items() if got[lane] < take}


# The smallest tokens that the runs of a limit can have, so that counting them does not read what ended long ago.


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
