"""How a worker gathers chunks: when one starts, which slots it takes, and what happens to jobs that wait for others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from pulse_django import Chunk, task
from pulse_django.conf import PulseSettings
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key, lane_of_chunks
from pulse_django.queue.words.lanes import Lane, in_jobs, in_slots, lane_of
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.options import ClaimedOptions
from pulse_django.queue.words.outcomes import Released, Succeeded, TimedOut
from pulse_django.run.judging import judged
from pulse_django.run.run import LOSSES_UNTIL_ALONE, ChunkRun, Performed, Run
from pulse_django.worker import in_flight
from pulse_django.worker.child import LONGEST_WAIT_FOR_SLOT, Dispatcher, RunSupervisor, waits_too_long
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.in_flight import MOST_AT_ONCE, MOST_BYTES, InFlight
from pulse_django.worker.lanes import KeyedLanes, PlainLanes
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.worker_options import WorkerOptions
from pulse_django.worker.worker_registration import presence_of
from tests.faults import each_of
from tests.worker.test_shared_leases import PREFIX, claim

SLOTS = 4
WITHIN = timedelta(seconds=10)


@task(name="chunking.patient", chunk=5, chunk_wait=WITHIN, aliases=("chunking.of_old",))
def patient(chunk: Chunk) -> None: ...


@task(name="chunking.hasty", chunk=5)
def hasty(chunk: Chunk) -> None: ...


@task(name="chunking.large", chunk=1_000)
def large(chunk: Chunk) -> None: ...


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


class FakeExecutors:
    """Takes what is submitted, and begins nothing by itself."""

    can_stop = kills = False

    def __init__(self) -> None:
        self.waiting: list[Run] = []
        self.stopped: list[Run] = []

    def submit(self, runs: Sequence[Run]) -> list[Run]:
        self.waiting += runs
        return []

    def take_back(self, wanted: Callable[[Run], bool]) -> list[Run]:
        taken = [run for run in self.waiting if wanted(run)]
        self.waiting = [run for run in self.waiting if run not in taken]
        return taken

    def of(self, run: Run) -> FakeExecutors:
        return self

    def stop(self, run: Run) -> bool:
        self.stopped.append(run)
        return self.can_stop


class Worker:
    """The parts of a child that have to do with chunks."""

    def __init__(self, clock: Clock, max_jobs: int = 0) -> None:
        self.clock, self.shared = clock, SharedLeases(PREFIX)
        self.in_flight = InFlight(self.shared, "default", SLOTS, max_jobs)
        self.executors, self.reported = FakeExecutors(), list[Performed]()
        self.dispatcher = Dispatcher(self.in_flight, self.reported.append, lambda: None, clock)
        self.dispatcher.executors = self.executors  # type: ignore[assignment]
        self.supervisor = RunSupervisor(self.in_flight, self.executors.of, self.reported.append)  # type: ignore[arg-type]
        self._ids = iter(range(1, 10_000))

    def claims(self, name: str, count: int = 1, **values: Any) -> list[Run]:
        """Claim so many jobs of a task now."""
        claims = [self.claim(name)._replace(**values) for _ in range(count)]
        runs = self.in_flight.take(claims, self.clock())
        self.dispatcher.start(runs)
        return runs

    def claim(self, name: str) -> Claim:
        return claim(next(self._ids), ttl=1e9)._replace(task=name, lane_key=lane_of_chunks(name))

    def chunks(self) -> list[int]:
        return [len(run.members) for run in self.executors.waiting if isinstance(run, ChunkRun)]

    def begin(self) -> ChunkRun:
        """Begin the first chunk that waits."""
        chunk = self.executors.waiting.pop(0)
        assert isinstance(chunk, ChunkRun)
        self.dispatcher.begin(chunk)
        return chunk

    def released(self) -> list[int]:
        return [one.run.claim.job_id for one in self.reported if isinstance(one.report.outcome, Released)]  # type: ignore[union-attr]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(in_flight, "time", SimpleNamespace(monotonic=clock))
    return clock


@pytest.fixture
def worker(clock: Clock) -> Worker:
    return Worker(clock)


def test_what_one_claim_brings_is_a_chunk_or_several(worker: Worker) -> None:
    worker.claims("chunking.hasty", 12)
    assert worker.chunks() == [5, 5, 2]
    worker.claims("chunking.hasty", 1)
    assert worker.chunks() == [5, 5, 2, 1]


def test_a_chunk_waits_for_others_until_it_is_full_or_as_long_as_it_may_from_its_first_job_on(
    worker: Worker, clock: Clock
) -> None:
    worker.claims("chunking.patient", 3)
    clock.now += 1.5
    worker.claims("chunking.of_old", 1)
    worker.dispatcher.start_due()
    assert worker.chunks() == []
    worker.claims("chunking.patient", 2)
    assert worker.chunks() == [5]
    assert worker.dispatcher.due_in() == WITHIN.total_seconds(), "the sixth job is the first of another chunk"
    clock.now += 9.9
    worker.claims("chunking.patient", 1)
    worker.dispatcher.start_due()
    assert worker.chunks() == [5]
    assert worker.dispatcher.due_in() == pytest.approx(0.1)
    clock.now += 0.2
    worker.dispatcher.start_due()
    assert worker.chunks() == [5, 2]
    assert worker.dispatcher.due_in() == float("inf")


def test_a_chunk_takes_a_slot_when_it_is_handed_over_and_its_jobs_take_none(worker: Worker) -> None:
    worker.claims("chunking.patient", 4)
    assert worker.in_flight.free_slots == SLOTS
    worker.claims("chunking.patient", 1)
    assert worker.in_flight.free_slots == SLOTS - 1
    worker.claims("t", 1)
    assert worker.in_flight.free_slots == SLOTS - 2
    assert worker.in_flight.slots_beyond_leases == 0
    chunk = worker.begin()
    assert worker.in_flight.slots_beyond_leases == -4, "one slot, and five leases"
    worker.dispatcher.done(chunk, ended(chunk))
    assert worker.in_flight.free_slots == SLOTS - 1
    assert len(worker.reported) == 5


def ended(chunk: ChunkRun, members: Sequence[Run] | None = None) -> Performed:
    members = chunk.members if members is None else members
    return Performed(chunk, None, None, members=[judged(member, None, Succeeded()) for member in members])


def test_a_job_that_is_decided_early_is_reported_and_the_chunk_keeps_its_slot(worker: Worker) -> None:
    runs = worker.claims("chunking.hasty", 3)
    chunk = worker.begin()
    assert chunk.report is not None
    chunk.report(runs[0], judged(runs[0], None, Succeeded()))
    assert [one.run for one in worker.reported] == runs[:1]
    assert worker.in_flight.free_slots == SLOTS - 1
    assert not worker.in_flight.is_active(runs[0])
    worker.dispatcher.done(chunk, ended(chunk, runs[1:]))
    assert [one.run for one in worker.reported] == runs
    assert worker.in_flight.free_slots == SLOTS


def test_a_job_that_has_killed_two_workers_is_never_gathered(worker: Worker) -> None:
    worker.claims("chunking.patient", 2)
    [alone] = worker.claims("chunking.patient", 1, losses=LOSSES_UNTIL_ALONE)
    assert worker.executors.waiting == [alone]
    assert alone.slots == 1


def test_the_wait_for_a_slot_begins_when_a_chunk_is_handed_over(worker: Worker, clock: Clock) -> None:
    """What is gathered is not handed back for want of a slot."""
    gathering = worker.claims("chunking.patient", 2)
    clock.now += LONGEST_WAIT_FOR_SLOT + 1.0
    assert not worker.supervisor.look_after(worker.in_flight.active, clock())
    worker.claims("chunking.hasty", 5)
    clock.now += LONGEST_WAIT_FOR_SLOT + 1.0
    assert worker.supervisor.look_after(worker.in_flight.active, clock()), "the other chunk waits for a slot"
    worker.dispatcher.give_back(lambda run: waits_too_long(run, clock()))
    assert len(worker.released()) == 5
    assert {run.claim.job_id for run in gathering}.isdisjoint(worker.released())
    assert worker.in_flight.free_slots == SLOTS
    clock.now += WITHIN.total_seconds()
    worker.dispatcher.start_due()
    assert not worker.supervisor.look_after(worker.in_flight.active, clock() + 1.0)
    worker.dispatcher.give_back(lambda run: waits_too_long(run, clock()))
    assert worker.chunks() == [2]


def test_a_worker_that_stops_hands_back_all_that_has_not_begun(worker: Worker) -> None:
    worker.claims("chunking.patient", 5)
    worker.claims("chunking.patient", 2)
    worker.claims("chunking.hasty", 5)
    running = worker.executors.waiting.pop()
    worker.dispatcher.begin(running)
    worker.dispatcher.give_back()
    assert len(worker.released()) == 7
    assert worker.in_flight.free_slots == SLOTS - 1
    assert worker.in_flight.gathering.total() == 0


def test_a_job_that_may_not_begin_is_left_out_and_a_chunk_without_others_is_not_begun(
    worker: Worker, clock: Clock
) -> None:
    runs = worker.claims("chunking.patient", 3)
    worker.shared.lost([held for held in worker.shared.held() if held.lease == runs[1].claim.lease])
    clock.now += WITHIN.total_seconds()
    worker.dispatcher.start_due()
    chunk = worker.begin()
    assert chunk.members == [runs[0], runs[2]]
    assert [held.lease for held in worker.shared.held()] == [runs[0].claim.lease, runs[2].claim.lease]
    worker.dispatcher.done(chunk, ended(chunk))
    worker.claims("chunking.hasty", 2, options=ClaimedOptions(timeout=timedelta(seconds=1)))
    clock.now += 1.5
    chunk = worker.executors.waiting.pop()
    assert not worker.dispatcher.begin(chunk)
    worker.dispatcher.done(chunk, None)
    assert worker.in_flight.free_slots == SLOTS
    assert len(worker.released()) == 2


def test_if_nothing_more_can_be_claimed_chunks_do_not_wait(worker: Worker, clock: Clock) -> None:
    worker.claims("chunking.patient", 1, args_json="x" * MOST_BYTES)
    assert worker.chunks() == [1]
    used_up = Worker(clock, max_jobs=3)
    used_up.claims("chunking.patient", 2)
    assert used_up.chunks() == []
    used_up.claims("chunking.patient", 1)
    assert used_up.chunks() == [3]
    assert not used_up.in_flight.is_used_up, "or what has not begun would be handed back"
    used_up.begin()
    assert used_up.in_flight.is_used_up


@pytest.mark.django_db
def test_a_handler_in_a_thread_is_stuck_when_all_of_its_jobs_are_given_up(worker: Worker, clock: Clock) -> None:
    worker.claims("chunking.patient", 2, options=ClaimedOptions(timeout=timedelta(seconds=5)))
    clock.now += 1.0
    worker.claims("chunking.patient", 3, options=ClaimedOptions(timeout=timedelta(seconds=50)))
    chunk = worker.begin()
    clock.now += 6.0
    worker.supervisor.look_after(worker.in_flight.active, clock())
    assert [one.report.outcome for one in worker.reported] == [TimedOut(), TimedOut()]  # type: ignore[union-attr]
    assert worker.in_flight.stuck_slots == 0, "it goes on with the others"
    clock.now += 50.0
    worker.supervisor.look_after(worker.in_flight.active, clock())
    assert worker.in_flight.stuck_slots == 1
    worker.dispatcher.done(chunk, ended(chunk))
    assert worker.in_flight.stuck_slots == 0
    assert not worker.in_flight.stuck


@pytest.mark.django_db
def test_a_retry_does_not_overtake_the_handler_of_a_chunk_that_goes_on(worker: Worker, clock: Clock) -> None:
    timeout = ClaimedOptions(timeout=timedelta(seconds=5))
    runs = worker.claims("chunking.large", 100, options=timeout)
    chunk = worker.begin()
    clock.now += 6.0
    worker.supervisor.look_after(worker.in_flight.active, clock())
    retries = [run.claim._replace(lease=run.claim.lease._replace(attempt=2)) for run in runs]
    again = worker.in_flight.take(retries, clock())
    assert not any(map(worker.in_flight.begin, again))
    worker.dispatcher.done(chunk, ended(chunk))
    assert all(map(worker.in_flight.begin, again))


def test_a_worker_is_shown_with_the_slots_that_its_chunks_take(worker: Worker) -> None:
    worker.claims("chunking.hasty", 5)
    worker.claims("chunking.patient", 3)
    worker.begin()
    said = {"slots_beyond_leases": worker.in_flight.slots_beyond_leases}
    child: Any = SimpleNamespace(held=lambda: list(worker.shared.held()), stuck=0, said=said)
    options = WorkerOptions.of(PulseSettings(), "w", {"concurrency": SLOTS})
    presence = presence_of(Identity("w"), options, [child], {})
    assert (presence.in_flight, presence.vitals["prefetched"]) == (1, 3)


# The claim

CHUNKS, PLAIN, OTHER = Lane("q", 0, ":chunk=t"), Lane("q", 0), Lane("q", 0, ":chunk=u")


@each_of(
    ({CHUNKS: 2}, 0, 4, 200, {CHUNKS: 20}),  # a slot takes ten
    ({CHUNKS: 2}, 3, 4, 200, {CHUNKS: 17}),  # three wait already
    ({CHUNKS: 1}, 10, 4, 200, {}),
    ({CHUNKS: 50}, 0, 4, 200, {CHUNKS: 40}),  # of what is prefetched beyond the slots, a chunk gets nothing
    ({CHUNKS: 50}, 0, 0, 200, {}),
    ({CHUNKS: 2, PLAIN: 2}, 0, 4, 200, {PLAIN: 2, CHUNKS: 20}),
    ({CHUNKS: 100, PLAIN: 100}, 0, 30, 200, {PLAIN: 100, CHUNKS: 100}),  # no more than one claim may bring
    ({CHUNKS: 3, OTHER: 3}, 0, 4, 200, {CHUNKS: 30, OTHER: 1}),  # three slots, and the fourth
    ({PLAIN: 9}, 0, 0, 200, {PLAIN: 9}),
    ({CHUNKS: 4}, 0, 4, 35, {CHUNKS: 30}),  # a chunk that would be cut is left for the next claim
    ({CHUNKS: 4}, 3, 4, 35, {CHUNKS: 27}),
    ({CHUNKS: 4}, 0, 4, 5, {CHUNKS: 5}),  # but not if no claim would bring a whole one
    ({CHUNKS: 4}, 8, 4, 1, {CHUNKS: 1}),
)
def test_a_claim_brings_whole_chunks_for_free_slots(
    *, takes: Any, gathered: Any, free: Any, most: Any, jobs: Any
) -> None:
    sizes = {CHUNKS: 10, OTHER: 1}
    assert in_jobs(takes, sizes, gathered={CHUNKS.key: gathered}, free=free, most=most) == jobs


def test_less_than_a_chunk_waits_if_there_is_room_for_all_of_it_soon_and_counts_as_one_lease() -> None:
    for most, jobs in [(9, {}), (10, {CHUNKS: 10}), (19, {CHUNKS: 10})]:
        assert in_jobs({CHUNKS: 2}, {CHUNKS: 10}, gathered={}, free=4, most=most, more_soon=True) == jobs
    assert in_slots({CHUNKS: 21, PLAIN: 21}, {CHUNKS: 10}) == {CHUNKS: 3, PLAIN: 21}


class Keyed:
    def __init__(self, flight: InFlight) -> None:
        database, worker = GuardedConnection("default", "claims"), Identity("w")
        self.lanes = KeyedLanes(database, worker, flight, PlainLanes(database, worker, flight))
        self.granted: list[Claim] = []

    def claim(self, limit: int, lanes: Sequence[Lane]) -> tuple[int, list[Lane]]:
        claiming = self.lanes.claim(limit, lanes, turn=0)
        while True:
            try:
                self.granted += next(claiming)[1]
            except StopIteration as end:
                result: tuple[int, list[Lane]] = end.value
                return result


@pytest.mark.usefixtures("pulse_db")
def test_a_lane_of_chunks_leaves_slots_to_others(worker: Worker) -> None:
    Job.objects.enqueue_many([NewJob(task="chunking.hasty", lane_key=lane_of_chunks("chunking.hasty"))] * 50)
    Job.objects.enqueue_many([NewJob(task="t", lane_key=lane_key("", "acme"))] * 50)
    Job.objects.enqueue_many([NewJob(task="t")] * 50)
    keyed = Keyed(worker.in_flight)
    found, left = keyed.claim(SLOTS, Job.objects.lanes())
    by_lane = {lane.key: sum(lane_of(one) == lane for one in keyed.granted) for lane in Job.objects.lanes()}
    assert sum(-(-count // (5 if "chunk" in key else 1)) for key, count in by_lane.items()) == found == SLOTS
    assert all(by_lane.values()), by_lane
    assert by_lane[lane_of_chunks("chunking.hasty")] in (5, 10)
    assert len(left) == 3


@pytest.mark.usefixtures("pulse_db")
def test_a_free_slot_goes_to_who_holds_the_fewest_slots(worker: Worker) -> None:
    """The lane of chunks holds ten leases, which are two slots; the other holds three."""
    for lane, held in ((lane_of_chunks("chunking.hasty"), 10), (lane_key("", "acme"), 3)):
        Job.objects.enqueue_many([NewJob(task="chunking.hasty", lane_key=lane)] * 30)
        Job.objects.claim(Identity("other"), limit=held, lanes=[Lane("default", 0, lane)])
    keyed = Keyed(worker.in_flight)
    keyed.claim(1, Job.objects.lanes())
    assert {one.lane_key for one in keyed.granted} == {lane_of_chunks("chunking.hasty")}
    assert len(keyed.granted) == 5


@pytest.mark.usefixtures("pulse_db")
def test_a_large_chunk_is_what_one_claim_may_bring_and_waits_for_a_slot_without_asking(worker: Worker) -> None:
    Job.objects.enqueue_many([NewJob(task="chunking.large", lane_key=lane_of_chunks("chunking.large"))] * 300)
    keyed = Keyed(worker.in_flight)
    found, _ = keyed.claim(SLOTS, Job.objects.lanes())
    assert (found, len(keyed.granted)) == (1, MOST_AT_ONCE)
    worker.claims("t", SLOTS)
    keyed = Keyed(worker.in_flight)
    assert keyed.claim(8, Job.objects.lanes()) == (0, Job.objects.lanes())
    assert keyed.granted == []
    assert keyed.lanes.closed_for() > 0
