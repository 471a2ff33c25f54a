"""The runs of a child from one shard, and how many more jobs it may claim there."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from threading import Lock
from typing import Protocol

from pulse_django.queue.capability import Single
from pulse_django.queue.claim import Slots
from pulse_django.queue.words.lane_keys import limiter_of, limiter_of_queue
from pulse_django.queue.words.lanes import Lane, lane_of
from pulse_django.queue.words.leases import Claim
from pulse_django.run.run import ChunkRun, Performed, Run, is_gathered

from .shared_leases import SharedLeases

# The most jobs in one claim. For larger batches, PostgreSQL would use hash joins, and locks would be held for longer.
MOST_AT_ONCE = 200
# Stop claiming above so many bytes of payloads. Decoded, they take about four times that in memory. With a lower limit,
# slots stay empty while jobs of a few MB run; a single job may take half of it.
MOST_BYTES = 64_000_000
REFUSED_FOR = 60.0  # seconds; jobs claimed before have begun by then, or went back
FRESH = 0.05  # seconds; a newer lease is valid without a check, because the shortest is 0.1 s
# Stop claiming above so many reports that wait for the database.
MOST_UNREPORTED = 1_000


class InFlight:
    """Runs from their claim until their report is accepted. Several threads use it.

    A child with several shards has one for each. They share the slots. ``peers`` are all of them, including this one.
    """

    def __init__(
        self, shared_leases: SharedLeases, alias: str, slots: int, max_jobs: int = 0, processes: int = 1
    ) -> None:
        self.slots, self._processes = slots, processes
        self.taken = 0
        self.is_orphaned = False  # the leases are not extended any more
        self.cannot_report = False  # runs claimed now could not be reported
        self.stuck: dict[int, Run] = {}  # given up: their handlers still hold a slot
        self._active: dict[int, Run] = {}  # waiting for a slot, or running
        self._occupied = 0  # slots of active and stuck runs
        self._heavy = 0  # runs that take several slots: while there are any, waiting runs must not begin
        self._chunks: dict[int, ChunkRun] = {}  # waiting or running chunks: each takes one slot for its members
        self.gathering: Counter[str] = Counter()  # runs that wait for the rest of their chunk, by lane key
        self._unreported: dict[int, Run] = {}
        self._overdue_runs = OverdueRuns(shared_leases)
        self._shared_leases, self.alias, self._max_jobs = shared_leases, alias, max_jobs
        self.prefetch = Prefetch(slots)
        self._bytes = 0  # of all payloads
        self._settled: Counter[Lane] = Counter()  # weights of settled runs
        self._has_had_keys = False  # without keys, _settled is not used
        self._refused: dict[str, float] = {}  # by limit or lane key: when a run here paused it
        self._lock = Lock()
        self.peers: Sequence[InFlight] = [self]
        self.wants_jobs, self.reserved = True, 0  # jobs of its shard may be due; slots of the current claim

    def __contains__(self, run: Run) -> bool:
        return id(run) in self._active or id(run) in self._unreported

    def of(self, run: Run) -> InFlight:
        """Return the object that has or had this run: this one or a peer."""
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
        """Return how many processes serve the same queues, if all workers are like this one. 0: not known yet."""
        return self.fleet_size * self._processes

    @property
    def backlog(self) -> int:
        """Return how many runs will soon end, if nothing delays them."""
        return len(self._active) if self.prefetch.jobs else 0

    def room(self) -> int:
        """Return how many jobs to claim now: none, or enough for a statement."""
        ahead = 0 if any(one._heavy for one in self.peers) else self.prefetch.jobs
        limit, worthwhile = min(self.free_slots + ahead, self.most_jobs()), min(MOST_AT_ONCE, ahead // 2)
        if len(self.peers) > 1:
            others = [one._occupied for one in self.peers if one is not self and one.wants_jobs]
            more = fair_share(self.slots + ahead, self._occupied, others)
            limit, worthwhile = min(limit, more), min(worthwhile, (self._occupied + more) // 2)
        return limit if limit >= (1 if self._max_jobs else max(1, worthwhile)) else 0

    def most_jobs(self) -> int:
        """Return how many jobs could be claimed now if slots did not matter."""
        if self.cannot_report or sum(one._bytes for one in self.peers) >= MOST_BYTES:
            return 0
        limit = min(MOST_AT_ONCE, self._shared_leases.room, MOST_UNREPORTED - len(self._unreported))
        return min(limit, self._max_jobs - self.all_taken) if self._max_jobs else limit

    @property
    def has_room_soon(self) -> bool:
        """Return whether more jobs can be claimed when the waiting reports are sent."""
        return MOST_UNREPORTED - len(self._unreported) < MOST_AT_ONCE

    @property
    def free_slots(self) -> int:
        """Return how many jobs of weight 1 could begin now. Negative: so many jobs wait for a slot."""
        if len(self.peers) == 1:
            return self.slots - self._occupied
        return self.slots - sum(one._occupied + (0 if one is self else one.reserved) for one in self.peers)

    @property
    def all_taken(self) -> int:
        """Return how many runs this child has had, from all shards."""
        return sum(one.taken for one in self.peers)

    @property
    def jobs_prove_short(self) -> bool:
        return self.prefetch.jobs >= self.slots

    @property
    def worthwhile_slots(self) -> int:
        """Return the free slots that make a claim without prefetch worthwhile: more if jobs are short."""
        return max(1, self._usable // 2) if self.jobs_prove_short else 1

    @property
    def for_claim(self) -> Slots:
        """Return the slots for a claim."""
        return Slots(self._usable, max(0, self.free_slots))

    @property
    def _usable(self) -> int:
        """Return how many slots are not held by stuck handlers."""
        return max(1, self.slots - self.stuck_slots)

    @property
    def stuck_slots(self) -> int:
        """Return how many slots are held by stuck handlers, for all shards."""
        chunks = [chunk for one in self.peers for chunk in list(one._chunks.values()) if one._is_stuck(chunk)]
        return sum(run.slots for run in (*chunks, *(run for one in self.peers for run in list(one.stuck.values()))))

    @property
    def slots_beyond_leases(self) -> int:
        """Return the occupied slots minus the leases. It is negative for chunks, which take one slot for all jobs."""
        running = [run for run in self.active if run.begun_at is not None]
        chunks = [chunk for chunk in list(self._chunks.values()) if chunk.begun_at is not None]
        return sum(one.slots for one in (*running, *chunks)) - len(running)

    @property
    def _has_unbegun_chunks(self) -> bool:
        """Return whether runs wait for the rest of their chunk, or a chunk waits for a slot."""
        return self.gathering.total() > 0 or any(one.begun_at is None for one in list(self._chunks.values()))

    def slots_of(self, claim: Claim) -> int:
        """Return how many slots a run takes. A job that is heavier than the worker takes all."""
        return min(claim.options.weight, self._usable)

    def settled_in_lanes(self) -> Counter[Lane]:
        """Return the weights of the runs that were settled since the last call, by lane.

        Lanes without a key are included only if this process has claimed from a lane with a key.
        """
        with self._lock:
            settled, self._settled = self._settled, Counter()
        return settled

    def held_in_lanes(self) -> Counter[Lane]:
        """Return the weights of the current runs, for each lane with a key."""
        held: Counter[Lane] = Counter()
        for run in (*list(self._active.values()), *list(self._unreported.values())):
            if run.claim.lane_key:
                held[lane_of(run.claim)] += run.claim.options.weight
        return held

    def refuse(self, what: str) -> None:
        """Refuse runs of this limit or lane key that were claimed before now, because it was paused."""
        now = time.monotonic()
        self._refused = {one: at for one, at in self._refused.items() if now - at < REFUSED_FOR} | {what: now}

    def _is_refused(self, run: Run) -> bool:
        claim, refused = run.claim, self._refused
        names = (claim.lane_key, limiter_of(claim.lane_key), limiter_of_queue(claim.queue))
        return any(run.granted_at < refused.get(name, run.granted_at) for name in names)

    @property
    def is_used_up(self) -> bool:
        """Return whether it has had ``max_jobs`` runs, or all its slots are stuck."""
        has_had_all = self._max_jobs and self.all_taken >= self._max_jobs
        is_used_up = has_had_all and not any(one._has_unbegun_chunks for one in self.peers)
        return is_used_up or self.stuck_slots >= self.slots

    def take(self, claims: Sequence[Claim], granted_at: float) -> list[Run]:
        """Add claimed jobs. From now on, the keeper extends their leases."""
        runs = []
        for claim in claims:
            entry = self._shared_leases.hold(claim, claim.patience_seconds)
            run = Run(claim, granted_at=granted_at, alias=self.alias, tether=entry)
            if claim.options.weight > 1:
                run.slots = self.slots_of(claim)
            elif claim.lane_key and is_gathered(claim):
                run.slots = 0  # its chunk takes a slot
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
        """Note that the handler of a chunk has ended, or is not called."""
        with self._lock:
            if self._chunks.pop(id(chunk), None) is not None:
                self._occupied -= chunk.slots

    def _is_stuck(self, chunk: ChunkRun) -> bool:
        """Return whether the handler is of no use to any member any more."""
        members = chunk.members
        return any(id(one) in self.stuck for one in members) and not any(id(one) in self._active for one in members)

    def begin(self, run: Run) -> bool:
        """Return whether the handler may be called, and note that it will be.

        A job never begins if its lease is lost, or if its deadline passed before it had a slot.
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
        """Note that a run is past its deadline. Until its handler ends, no other run of its job begins here."""
        with self._lock:
            if id(run) in self._active:
                self._overdue_runs.add(run)

    def would_overtake(self, run: Run) -> bool:
        """Return whether an earlier run of the same job is past its deadline and still runs in this worker."""
        return self._overdue_runs.block(run)

    def blocks_a_retry(self, now: float) -> bool:
        """Return whether a retry has waited long for a handler here, and ending the process would harm nothing else."""
        return all(one.is_idle for one in self.peers) and self._overdue_runs.have_blocked_for_long(now)

    def is_active(self, run: Run) -> bool:
        """Return whether it waits for a slot or runs, and was not given up."""
        return id(run) in self._active

    # Several threads move runs from one dict to the other, and a run must always be in one of them. The lock is held
    # for one run at a time: a thread that holds it for a batch may lose the interpreter, and block all other threads.

    def ended(self, run: Run) -> None:
        """Note that the handler has ended. Its slot is free."""
        with self._lock:
            if self.stuck.pop(id(run), None) is not None:
                self._free(run)
            self._overdue_runs.ended(run)
            if self._active.pop(id(run), None) is not None:
                self._free(run)
                self._unreported[id(run)] = run

    def given_up(self, run: Run) -> bool:
        """Give up a handler, which keeps its slot. Return False if it has just ended."""
        with self._lock:
            if self._active.pop(id(run), None) is None:
                return False
            self._unreported[id(run)] = self.stuck[id(run)] = run
        return True

    def reporting(self, runs: Iterable[Run]) -> None:
        """Note that these runs will be reported now."""
        for run in runs:
            with self._lock:  # an entry that is dropped may get another lease
                run.tether.end()  # type: ignore[union-attr]  # runs in hand have one

    def settled(self, runs: Iterable[Run]) -> None:
        """Drop the leases of settled runs."""
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
    """Share the slots of a child among its shards, and also the prefetched jobs, which wait for these slots."""
    for one in flights:
        one.peers, one.prefetch = flights, flights[0].prefetch


# How many jobs a child prefetches beyond its free slots: more while handlers are short, and none during a long one.


MOST_PREFETCHED = 400
# Seconds in which prefetched jobs should begin. If longer, they are kept from idle workers. If shorter, batches of
# short jobs are small.
HORIZON = 0.25
FIRST_PREFETCH = 8


class Prefetch:
    def __init__(self, slots: int) -> None:
        self.jobs = 0  # set it to 0 during a long handler, so that only jobs that can begin at once are claimed
        self._slots = slots
        self._mean = 0.0

    def learn(self, took: Sequence[float]) -> None:
        """Adapt to the durations of handlers."""
        self._mean += (sum(took) / len(took) - self._mean) * 0.3
        if max(took) > HORIZON:
            self.jobs = 0
            return
        fitting = int(HORIZON * self._slots / max(self._mean, 1e-6))
        self.jobs = min(fitting, MOST_PREFETCHED, max(FIRST_PREFETCH, 2 * self.jobs))


# Sharing the slots of a child among its shards.


def fair_share(slots: int, mine: int, others: Sequence[int]) -> int:
    """Return how many more slots a shard may take that has ``mine``. ``others`` are the slots of shards that want more.

    The remainder of the division goes to the shards with the fewest slots.
    """
    share, rest = divmod(slots, len(others) + 1)
    fewer = sum(one < mine for one in others)
    return share + (fewer < rest) - mine


# Runs of a child that go on after their deadlines. Until they end, no other run of their jobs begins here.


# Seconds for which a retry waits for the thread of the run before. If shorter, threads are killed that would have
# ended. If longer, the job of a thread that never ends waits.
PATIENCE_WITH_OVERDUE_RUNS = 30.0


class OverdueRuns:
    """The overdue runs. Changes are made under the lock of their ``InFlight``."""

    def __init__(self, shared_leases: SharedLeases) -> None:
        self._runs: dict[int, Run] = {}
        self._retry_waits_since = float("inf")  # for an overdue run to end
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
        """Return whether an earlier run of the same job is past its deadline and still runs in this worker."""
        if run.claim.attempt == 1 or run.claim.job_id not in self._shared_leases.overdue_handlers:
            return False
        if any(one.claim.job_id == run.claim.job_id for one in list(self._runs.values())):
            self._retry_waits_since = min(self._retry_waits_since, time.monotonic())
        return True

    def have_blocked_for_long(self, now: float) -> bool:
        return bool(self._runs) and now - self._retry_waits_since > PATIENCE_WITH_OVERDUE_RUNS


# The runs that wait for others before their handler is called.


class Gatherer(Protocol):
    """Collects claimed runs until their handler is called once for several of them."""

    def add(self, runs: Sequence[Run]) -> Sequence[Run]: ...  # returns the runs that start now
    def due(self) -> Sequence[Run]: ...
    def due_in(self) -> float: ...
    def take_back(self) -> Sequence[Run]: ...


class Gathering(Single):
    """Makes a gatherer for each child."""

    @abstractmethod
    def gatherer(
        self, in_flight: InFlight, report: Callable[[Run, Performed], None], clock: Callable[[], float]
    ) -> Gatherer: ...
