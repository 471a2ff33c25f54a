"""The runs that a child has from one shard, and how many more it may claim there."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from threading import Lock

from pulse_django.queue.claim import Slots
from pulse_django.queue.words.lane_keys import limiter_of, limiter_of_queue
from pulse_django.queue.words.lanes import Lane, lane_of
from pulse_django.queue.words.leases import Claim
from pulse_django.run.run import ChunkRun, Run, is_gathered

from .shared_leases import SharedLeases

# One claim's worth. Larger batches flip PostgreSQL to hash joins and hold their locks for longer.
MOST_AT_ONCE = 200
# Bytes of payloads in hand beyond which nothing more is claimed: text and what is made of it take about four times that
# in memory. With less, slots stay empty while jobs of a few MB run; a single job may be half of it.
MOST_BYTES = 64_000_000
REFUSED_FOR = 60.0  # seconds; what was claimed before has begun by then, or went back
FRESH = 0.05  # a lease granted so many seconds ago need not be asked whether it lives: the shortest is 0.1 s
# Reports that may wait for a database that is away, beyond which nothing more is claimed.
MOST_UNREPORTED = 1_000


class InFlight:
    """Runs from their claim to the answer to their report. Several threads use it.

    A child that serves several shards has one for each. They share the slots; ``peers`` are all of them, itself too.
    """

    def __init__(
        self, shared_leases: SharedLeases, alias: str, slots: int, max_jobs: int = 0, processes: int = 1
    ) -> None:
        self.slots, self._processes = slots, processes
        self.taken = 0
        self.is_orphaned = False  # its leases are not extended any more
        self.cannot_report = False  # what it claimed now would run and stay unreported
        self.stuck: dict[int, Run] = {}  # abandoned: their handlers still hold a slot
        self._active: dict[int, Run] = {}  # waiting for a slot, or running
        self._occupied = 0  # slots of these, and of those that are stuck
        self._heavy = 0  # how many of them take several slots: what waits for one beside them must not begin
        self._chunks: dict[int, ChunkRun] = {}  # waiting for a slot, or running: each takes one for its members
        self.gathering: Counter[str] = Counter()  # runs that wait for others of their chunk, by lane key
        self._unreported: dict[int, Run] = {}
        self._overdue_runs = OverdueRuns(shared_leases)
        self._shared_leases, self.alias, self._max_jobs = shared_leases, alias, max_jobs
        self.prefetch = Prefetch(slots)
        self._bytes = 0  # of all payloads in hand
        self._settled: Counter[Lane] = Counter()  # what runs weighed that have been settled
        self._has_had_keys = False  # without, no one asks for the above
        self._refused: dict[str, float] = {}  # limits and lane keys: when a run here has closed them
        self._lock = Lock()
        self.peers: Sequence[InFlight] = [self]
        self.wants_jobs, self.reserved = True, 0  # jobs of its shard may be due; slots of a claim that runs

    def __contains__(self, run: Run) -> bool:
        return id(run) in self._active or id(run) in self._unreported

    def of(self, run: Run) -> InFlight:
        """Return what has this run, or had it: this, or a peer."""
        return self if len(self.peers) == 1 else next(one for one in self.peers if one.alias == run.alias)

    @property
    def active(self) -> list[Run]:
        return list(self._active.values())

    @property
    def is_idle(self) -> bool:
        return not self._active and not self._unreported and all(map(self._is_stuck, list(self._chunks.values())))

    @property
    def fleet_size(self) -> int:
        return self._shared_leases.fleet_size

    @property
    def claimers(self) -> int:
        """How many processes serve the same queues, if all workers have as many as this one. 0: it is not known yet."""
        return self.fleet_size * self._processes

    @property
    def backlog(self) -> int:
        """How many are about to come to their end, if nothing holds them up."""
        return len(self._active) if self.prefetch.jobs else 0

    def room(self) -> int:
        """Return how many jobs to claim now: none, or enough to be worth a statement."""
        ahead = 0 if any(one._heavy for one in self.peers) else self.prefetch.jobs
        limit, worthwhile = min(self.free_slots + ahead, self.most_jobs()), min(MOST_AT_ONCE, ahead // 2)
        if len(self.peers) > 1:
            others = [one._occupied for one in self.peers if one is not self and one.wants_jobs]
            more = fair_share(self.slots + ahead, self._occupied, others)
            limit, worthwhile = min(limit, more), min(worthwhile, (self._occupied + more) // 2)
        return limit if limit >= (1 if self._max_jobs else max(1, worthwhile)) else 0

    def most_jobs(self) -> int:
        """Return how many jobs could be claimed now if they took no slots."""
        if self.cannot_report or sum(one._bytes for one in self.peers) >= MOST_BYTES:
            return 0
        limit = min(MOST_AT_ONCE, self._shared_leases.room, MOST_UNREPORTED - len(self._unreported))
        return min(limit, self._max_jobs - self.all_taken) if self._max_jobs else limit

    @property
    def has_room_soon(self) -> bool:
        """Whether more can be claimed as soon as ends are reported that wait for it."""
        return MOST_UNREPORTED - len(self._unreported) < MOST_AT_ONCE

    @property
    def free_slots(self) -> int:
        """How many jobs that take one slot could begin now. Negative: so many wait for a slot."""
        if len(self.peers) == 1:
            return self.slots - self._occupied
        return self.slots - sum(one._occupied + (0 if one is self else one.reserved) for one in self.peers)

    @property
    def all_taken(self) -> int:
        """How many runs this child has had, of all shards."""
        return sum(one.taken for one in self.peers)

    @property
    def jobs_prove_short(self) -> bool:
        return self.prefetch.jobs >= self.slots

    @property
    def worthwhile_slots(self) -> int:
        """How many free slots are worth a claim of jobs that are not claimed ahead: more while jobs prove short."""
        return max(1, self._usable // 2) if self.jobs_prove_short else 1

    @property
    def for_claim(self) -> Slots:
        """Return what a claim has to know of its slots."""
        return Slots(self._usable, max(0, self.free_slots))

    @property
    def _usable(self) -> int:
        """How many slots are not held by handlers that were abandoned."""
        return max(1, self.slots - self.stuck_slots)

    @property
    def stuck_slots(self) -> int:
        """How many slots are held by handlers that were abandoned, of all shards."""
        chunks = [chunk for one in self.peers for chunk in list(one._chunks.values()) if one._is_stuck(chunk)]
        return sum(run.slots for run in (*chunks, *(run for one in self.peers for run in list(one.stuck.values()))))

    @property
    def slots_beyond_leases(self) -> int:
        """How many slots what runs takes beyond one for each lease. A chunk takes one for all of its jobs: below 0."""
        running = [run for run in self.active if run.begun_at is not None]
        chunks = [chunk for chunk in list(self._chunks.values()) if chunk.begun_at is not None]
        return sum(one.slots for one in (*running, *chunks)) - len(running)

    @property
    def _has_unbegun_chunks(self) -> bool:
        """Whether runs wait for others of their chunk, or a chunk waits for a slot."""
        return self.gathering.total() > 0 or any(one.begun_at is None for one in list(self._chunks.values()))

    def slots_of(self, claim: Claim) -> int:
        """Return how many slots a run takes. One that is heavier than all of them takes all."""
        return min(claim.options.weight, self._usable)

    def settled_in_lanes(self) -> Counter[Lane]:
        """Return what the runs of each lane weighed that have been settled since the last call.

        Of lanes without a key only if this process has claimed from one with a key.
        """
        with self._lock:
            settled, self._settled = self._settled, Counter()
        return settled

    def held_in_lanes(self) -> Counter[Lane]:
        """Return what the runs of each lane with a key weigh that are in hand now."""
        held: Counter[Lane] = Counter()
        for run in (*list(self._active.values()), *list(self._unreported.values())):
            if run.claim.lane_key:
                held[lane_of(run.claim)] += run.claim.options.weight
        return held

    def refuse(self, what: str) -> None:
        """Let no run of this limit or lane key begin that was claimed before now: it was closed."""
        now = time.monotonic()
        self._refused = {one: at for one, at in self._refused.items() if now - at < REFUSED_FOR} | {what: now}

    def _is_refused(self, run: Run) -> bool:
        claim, refused = run.claim, self._refused
        names = (claim.lane_key, limiter_of(claim.lane_key), limiter_of_queue(claim.queue))
        return any(run.granted_at < refused.get(name, run.granted_at) for name in names)

    @property
    def is_used_up(self) -> bool:
        """It has had all the runs that it may have, or all its slots are stuck."""
        has_had_all = self._max_jobs and self.all_taken >= self._max_jobs
        is_used_up = has_had_all and not any(one._has_unbegun_chunks for one in self.peers)
        return is_used_up or self.stuck_slots >= self.slots

    def take(self, claims: Sequence[Claim], granted_at: float) -> list[Run]:
        """Take over what was claimed; the keeper sees it from now on."""
        runs = []
        for claim in claims:
            entry = self._shared_leases.hold(claim, claim.patience_seconds)
            run = Run(claim, granted_at=granted_at, alias=self.alias, tether=entry)
            if claim.options.weight > 1:
                run.slots = self.slots_of(claim)
            elif claim.lane_key and is_gathered(claim):
                run.slots = 0  # its chunk takes one
            self._has_had_keys = self._has_had_keys or claim.lane_key != ""
            runs.append(run)
        with self._lock:
            for run in runs:
                self._active[id(run)] = run
                self._occupied += run.slots
                self._heavy += run.slots > 1
            self._bytes += sum(claim.size for claim in claims)
        self.taken += len(claims)
        return runs

    def occupy(self, chunk: ChunkRun) -> None:
        """Note that a chunk waits for a slot."""
        with self._lock:
            self._chunks[id(chunk)] = chunk
            self._occupied += chunk.slots

    def vacate(self, chunk: ChunkRun) -> None:
        """Note that the handler of a chunk is over, or is not called."""
        with self._lock:
            if self._chunks.pop(id(chunk), None) is not None:
                self._occupied -= chunk.slots

    def _is_stuck(self, chunk: ChunkRun) -> bool:
        """Whether all that its handler could still do is of no use."""
        members = chunk.members
        return any(id(one) in self.stuck for one in members) and not any(id(one) in self._active for one in members)

    def begin(self, run: Run) -> bool:
        """Say whether the handler may be called, and note that it will be.

        A job whose lease is gone is never begun, nor one whose time was up before it had a slot.
        """
        now = time.monotonic()
        if now - run.granted_at > FRESH:
            run.look()
            if run.lost or run.lease_remaining() <= 0 or run.overdue(now):
                return False
        if run.reported or self.would_overtake(run):
            return False
        if self._refused and self._is_refused(run):
            return False
        run.tether.begin()  # type: ignore[union-attr]  # runs in hand have one
        run.begun_at = now
        return True

    def overstays(self, run: Run) -> None:
        """Note that a run is past its deadline: until its handler has ended, no other run of its job begins here."""
        with self._lock:
            if id(run) in self._active:
                self._overdue_runs.add(run)

    def would_overtake(self, run: Run) -> bool:
        """Whether a handler of an earlier run of the same job goes on in this worker though its time is up."""
        return self._overdue_runs.block(run)

    def blocks_a_retry(self, now: float) -> bool:
        """Whether a retry has waited for long for a handler here, and nothing else would suffer from its end."""
        return all(one.is_idle for one in self.peers) and self._overdue_runs.have_blocked_for_long(now)

    def is_active(self, run: Run) -> bool:
        """Whether it waits for a slot or runs, and was not abandoned."""
        return id(run) in self._active

    # Several threads move runs from one dict to the other; a run must not be seen in neither. The lock is held for one
    # run at a time: who holds it for a batch may lose the interpreter, and all other threads wait for it.

    def ended(self, run: Run) -> None:
        """Note that the handler is over; its slot is free."""
        with self._lock:
            if self.stuck.pop(id(run), None) is not None:
                self._free(run)
            self._overdue_runs.ended(run)
            if self._active.pop(id(run), None) is not None:
                self._free(run)
                self._unreported[id(run)] = run

    def given_up(self, run: Run) -> bool:
        """Abandon this handler, though it keeps its slot. False: it has just ended."""
        with self._lock:
            if self._active.pop(id(run), None) is None:
                return False
            self._unreported[id(run)] = self.stuck[id(run)] = run
        return True

    def reporting(self, runs: Iterable[Run]) -> None:
        """Note that the ends of these are about to be reported."""
        for run in runs:
            with self._lock:  # an entry that is let go of meanwhile may be another lease's
                run.tether.end()  # type: ignore[union-attr]  # runs in hand have one

    def settled(self, runs: Iterable[Run]) -> None:
        """Let go of leases that are over."""
        for run in runs:
            with self._lock:
                active, unreported = self._active.pop(id(run), None), self._unreported.pop(id(run), None)
                if active is not None:
                    self._free(run)
                if active is not None or unreported is not None:
                    self._bytes -= run.claim.size
                    if self._has_had_keys:
                        self._settled[lane_of(run.claim)] += run.claim.options.weight
                    run.tether.drop()  # type: ignore[union-attr]

    def _free(self, run: Run) -> None:
        self._occupied -= run.slots
        self._heavy -= run.slots > 1


def share_slots(flights: Sequence[InFlight]) -> None:
    """Let the shards of a child share its slots, and what is claimed ahead, which waits for the same slots."""
    for one in flights:
        one.peers, one.prefetch = flights, flights[0].prefetch


# How many jobs a child claims beyond its free slots: more while handlers prove short, and none beside a long one.


MOST_PREFETCHED = 400
# Seconds in which what was prefetched should have begun. Longer keeps work from idle workers; shorter makes small
# batches of short jobs.
HORIZON = 0.25
FIRST_PREFETCH = 8


class Prefetch:
    def __init__(self, slots: int) -> None:
        self.jobs = 0  # set it to 0 when a handler is taking long: nothing that could not begin at once is claimed
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


# How the slots of a child are shared among the shards that it serves.


def fair_share(slots: int, mine: int, others: Sequence[int]) -> int:
    """Return how many more slots a shard may take that has ``mine``. ``others`` are those of shards that want some.

    What is left over by the division goes to the shards that have the fewest.
    """
    share, rest = divmod(slots, len(others) + 1)
    fewer = sum(one < mine for one in others)
    return share + (fewer < rest) - mine


# Runs of a child that are past their deadlines and go on: meanwhile no other run of their jobs begins here.


# Seconds for which a retry waits for the thread of the run before. Shorter kills threads that would have ended; longer
# keeps the job of a thread that never ends.
PATIENCE_WITH_OVERDUE_RUNS = 30.0


class OverdueRuns:
    """What is changed here is changed under the lock of the ``InFlight`` that it is a part of."""

    def __init__(self, shared_leases: SharedLeases) -> None:
        self._runs: dict[int, Run] = {}
        self._retry_waits_since = float("inf")  # for one of them to end
        self._shared_leases = shared_leases

    def add(self, run: Run) -> None:
        if id(run) not in self._runs:
            self._runs[id(run)] = run
            self._shared_leases.overdue_handlers.add(self._shared_leases.index, run.claim.job_id)

    def ended(self, run: Run) -> None:
        if self._runs.pop(id(run), None) is not None:
            self._shared_leases.overdue_handlers.remove(self._shared_leases.index, run.claim.job_id)
            self._retry_waits_since = float("inf")

    def block(self, run: Run) -> bool:
        """Whether a handler of an earlier run of the same job goes on in this worker though its time is up."""
        if run.claim.attempt == 1 or run.claim.job_id not in self._shared_leases.overdue_handlers:
            return False
        if any(one.claim.job_id == run.claim.job_id for one in list(self._runs.values())):
            self._retry_waits_since = min(self._retry_waits_since, time.monotonic())
        return True

    def have_blocked_for_long(self, now: float) -> bool:
        return bool(self._runs) and now - self._retry_waits_since > PATIENCE_WITH_OVERDUE_RUNS
