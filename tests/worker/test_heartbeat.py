"""Heartbeats: one statement for all that a worker holds, in time for the shortest lease, with answers for each."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test.utils import CaptureQueriesContext

from pulse_django import api
from pulse_django.managers import JobManager
from pulse_django.models import Job, Worker
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.run import Run
from pulse_django.worker import heartbeat as module
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.heartbeat import (
    BEATS_PER_LEASE,
    IDLE_TICK,
    PAUSE_BEFORE_SKIPPED,
    TICK,
    WATCHED_FOR,
    Heartbeat,
)
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from tests.factories import make_job, presence
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")


class Clock:
    def __init__(self) -> None:
        self.now = time.monotonic()

    def monotonic(self) -> float:
        return self.now


class Host:
    """A keeper's heartbeat over two children, without their processes."""

    def __init__(self) -> None:
        self.children = [SharedLeases(f"host:boot.{number}:") for number in (1, 2)]
        self.held_leases = self.children
        self.identities = [Identity("host", f"boot.{number}") for number in (1, 2)]
        self.hands = [InFlight(shared_leases, "default", 1_000) for shared_leases in self.children]
        self.heartbeat = Heartbeat(GuardedConnection("default", "heartbeat"), lambda: self.held_leases)

    def claim(self, count: int = 1, child: int = 0, **job: Any) -> list[Run]:
        for _ in range(count):
            make_job(**job)
        granted_at = time.monotonic()
        return self.hands[child].take(Job.objects.claim(self.identities[child], limit=count), granted_at)

    def beat(self) -> float:
        """Beat now, whether it is time or not."""
        self.heartbeat._idle, self.heartbeat._due_at = False, 0.0
        return self.heartbeat.run_once()


@pytest.fixture
def host() -> Iterator[Host]:
    host = Host()
    yield host
    connection.close()  # it has the settings of the line by now
    host.heartbeat.database.hang_up()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def test_one_statement_for_all_children_however_many_jobs_with_their_progress(host: Host) -> None:
    with CaptureQueriesContext(connection) as queries:
        for _ in range(20):
            host.heartbeat.run_once()
    assert len(queries) == 0, "nothing is held"
    runs = host.claim(150, child=0) + host.claim(50, child=1)
    host.held_leases[0].progress[runs[0].claim.lease] = '{"done": 5}'
    host.heartbeat.database.call(int)  # its connection is there
    with CaptureQueriesContext(connection) as queries:
        host.beat()
    statements = [query["sql"] for query in queries if "lease_until" in query["sql"]]
    assert len(statements) == 1
    assert len(queries) <= 3, "with BEGIN and COMMIT at most"
    assert all(run.tether is not None and run.tether.extended_at() > 0 for run in runs)
    assert (api.progress(runs[0].claim.job_id), host.held_leases[0].progress) == ({"done": 5}, {})


def test_a_beat_extends_the_lease_in_the_table_and_in_the_hand_of_its_holder(host: Host) -> None:
    [run] = host.claim()
    sql("UPDATE pulse_django_job SET lease_until = clock_timestamp() + interval '1 s'")
    run._extended_at = run.granted_at - 29  # nearly over, by its own clock
    before = time.monotonic()
    host.beat()
    [(left,)] = sql("SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM pulse_django_job")
    assert 28 < left <= 30
    assert 30 - (time.monotonic() - before) - 0.01 <= run.lease_remaining() <= 30


def test_a_lease_is_trusted_from_when_its_beat_was_sent(
    host: Host, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = JobManager.heartbeat

    def slow(self: Any, *args: Any, **options: Any) -> Any:
        answer = beat(self, *args, **options)
        clock.now += 7
        return answer

    monkeypatch.setattr(JobManager, "heartbeat", slow)
    [run] = host.claim()
    sent_at = clock.now
    host.beat()
    assert run.tether is not None
    assert 0 < run.tether.extended_at() <= sent_at


def test_beats_come_in_thirds_of_a_lease_and_never_late(host: Host, clock: Clock) -> None:
    host.claim()
    begin, beats = clock.now, []
    while clock.now < begin + 60:
        before = host.heartbeat.vitals.beats
        pause = host.heartbeat.run_once()
        if host.heartbeat.vitals.beats > before:
            beats.append(clock.now)
        clock.now += pause
    gaps = [later - earlier for earlier, later in zip([begin, *beats], beats, strict=False)]
    assert all(8 - IDLE_TICK <= gap <= 10 + 2 * TICK for gap in gaps), gaps
    assert len({round(gap, 2) for gap in gaps}) > 1, "not in step with other hosts"


def test_a_lease_that_was_granted_just_after_a_look_is_extended_in_time(host: Host, clock: Clock) -> None:
    pause = host.heartbeat.run_once()
    assert pause == IDLE_TICK, "nothing is held"
    [run] = host.claim(lease_ttl=timedelta(seconds=0.5))
    granted_at, clock.now = clock.now, clock.now + pause
    while host.heartbeat.vitals.beats == 0:
        clock.now += host.heartbeat.run_once()
    assert clock.now - granted_at < 0.5
    host.hands[0].settled([run])
    assert host.heartbeat.run_once() == TICK, "an idle worker that had a short one looks as often as a busy one"


def test_how_late_beats_are_answered_is_counted_with_the_time_of_those_that_failed(
    host: Host, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.claim()
    host.heartbeat.run_once()
    clock.now = host.heartbeat._due_at + 0.01
    host.heartbeat.run_once()
    [punctual] = host.heartbeat.vitals.delays.counts
    clock.now = host.heartbeat._due_at
    with monkeypatch.context() as broken:
        broken.setattr("pulse_django.managers.JobManager.heartbeat", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            host.heartbeat.run_once()
    clock.now += 3.0
    host.heartbeat.run_once()
    said = host.heartbeat.vitals.to_json()
    assert (said["beats"], said["beat_failures"]) == (2, 1)
    assert host.heartbeat.vitals.delays.quantile(1.0) == pytest.approx(3.0, rel=0.42)
    assert len(said["beat_delays"]) == 2
    assert Histogram(Counter([punctual])).quantile(1.0) == pytest.approx(0.01, rel=0.42)


def test_a_shorter_lease_beats_sooner(host: Host, clock: Clock) -> None:
    host.claim()
    host.heartbeat.run_once()
    clock.now += 1
    host.claim(lease_ttl=timedelta(seconds=1.5))
    begin = clock.now
    while not host.heartbeat.vitals.beats:
        clock.now += host.heartbeat.run_once()
        assert clock.now < begin + 1.5 / BEATS_PER_LEASE + 2 * TICK


def test_progress_of_a_job_that_is_looked_at_is_written_each_second_and_nothing_is_sent_for_others(
    host: Host, clock: Clock
) -> None:
    looked_at, other = host.claim(2)
    host.beat()
    progress = host.held_leases[0].progress

    def seen(seconds: float) -> tuple[Any, Any, int]:
        clock.now += seconds
        with CaptureQueriesContext(connection) as queries:
            host.heartbeat.run_once()
        return *(api.progress(run.claim.job_id) for run in (looked_at, other)), len(queries)

    for run in (looked_at, other):
        progress[run.claim.lease] = '{"done": 1}'
    host.heartbeat.watch(0)  # no job of this worker
    assert seen(1.0) == (None, None, 0)
    host.heartbeat.watch(looked_at.claim.job_id)
    assert seen(1.0) == ({"done": 1}, None, 1)
    assert seen(1.0) == ({"done": 1}, None, 0), "it has made no progress"
    progress[looked_at.claim.lease] = '{"done": 2}'
    assert seen(1.0) == ({"done": 2}, None, 1)
    progress[looked_at.claim.lease] = '{"done": 3}'
    host.heartbeat._watched[looked_at.claim.job_id] -= WATCHED_FOR
    assert seen(1.0) == ({"done": 2}, None, 0), "nobody looks any more"
    host.beat()
    assert [api.progress(run.claim.job_id) for run in (looked_at, other)] == [{"done": 3}, {"done": 1}]


def test_progress_of_a_beat_that_failed_goes_with_the_next_unless_there_is_newer(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = host.claim(2)
    progress = host.held_leases[0].progress
    progress |= {first.claim.lease: '{"done": 1}', second.claim.lease: '{"done": 2}'}

    def fails(self: Any, leases: Any, taken: Any) -> None:
        progress[second.claim.lease] = '{"done": 3}'  # said while the beat was under way
        raise OperationalError("gone")

    with monkeypatch.context() as broken:
        broken.setattr("pulse_django.managers.JobManager.heartbeat", fails)
        with pytest.raises(OperationalError):
            host.beat()
    assert host.heartbeat.vitals.failures == 1
    host.beat()
    assert [api.progress(run.claim.job_id) for run in (first, second)] == [{"done": 1}, {"done": 3}]


def test_a_locked_row_is_left_out_and_looked_at_again_soon(host: Host, rival: Rival) -> None:
    locked, free = host.claim(2)
    host.held_leases[0].progress[locked.claim.lease] = '{"done": 1}'
    rival.lock_row(locked.claim.job_id)
    assert host.beat() == PAUSE_BEFORE_SKIPPED
    assert locked.tether is not None
    assert free.tether is not None
    assert (locked.tether.extended_at(), locked.tether.is_lost()) == (0.0, False)
    assert free.tether.extended_at() > 0
    rival.rollback()
    host.heartbeat.run_once()  # long before the next beat is due
    assert locked.tether.extended_at() > 0
    assert api.progress(locked.claim.job_id) == {"done": 1}


def test_what_was_taken_away_deleted_or_cancelled_is_told_to_its_holder_only(host: Host) -> None:
    lost, deleted, cancelled, _ = runs = host.claim(4)
    api.release(lost.claim.job_id)
    Job.objects.filter(pk=deleted.claim.job_id).delete()
    api.cancel(cancelled.claim.job_id)
    host.beat()
    for run in runs:
        run.look()
    told = [(run.lost, run.cancelled) for run in runs]
    assert told == [(True, False), (True, False), (False, True), (False, False)]


def test_a_loss_is_counted_once_and_not_asked_for_again(host: Host) -> None:
    [lost, kept] = host.claim(2)
    Job.objects.filter(pk=lost.claim.job_id).update(attempts=2)
    host.beat()
    assert host.heartbeat.vitals.refused == {"heartbeat": 1}
    with CaptureQueriesContext(connection) as queries:
        host.beat()
    assert host.heartbeat.vitals.refused == {"heartbeat": 1}
    assert str(lost.claim.lease.holder) in str(kept.claim.lease.holder), "one claim: only the job tells them apart"
    assert f'"id": {lost.claim.job_id},' not in queries.captured_queries[0]["sql"]
    host.hands[0].settled([lost])
    [next_one] = host.claim()
    host.beat()
    next_one.look()
    assert not next_one.lost, "what was said of another lease in the same place is not said of this one"


@pytest.mark.parametrize("answered", [False, True], ids=["no answer yet", "answered meanwhile"])
def test_a_beat_that_meets_the_settle_of_its_own_run_was_not_refused(
    host: Host, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    [run, lost] = host.claim(2)
    Job.objects.filter(pk=lost.claim.job_id).update(attempts=2)
    beat = JobManager.heartbeat

    def settled_first(jobs: JobManager, *args: Any) -> Any:
        """The beat's statement comes after the settle's, and before its answer or just after that."""
        host.hands[0].reporting([run])
        assert Job.objects.settle([Report(run.claim.lease, Succeeded(), Complete())]).accepted
        if answered:
            host.hands[0].settled([run])
        return beat(jobs, *args)

    monkeypatch.setattr(JobManager, "heartbeat", settled_first)
    host.beat()
    assert host.heartbeat.vitals.refused == {"heartbeat": 1}, "of the other one"


def test_who_is_reporting_its_end_holds_its_lease_until_it_has_the_answer(host: Host) -> None:
    [begun, waiting] = host.claim(2)
    assert host.hands[0].begin(begun)
    host.hands[0].reporting([begun, waiting])
    assert [held.begun for held in host.children[0].held()] == [True, False]
    host.beat()
    assert begun.tether is not None
    assert begun.tether.extended_at() > 0


def test_the_worker_says_that_it_is_there_and_that_it_goes() -> None:
    said = presence("host", queues=["mail"], in_flight=2, stuck_slots=1)
    beat = Heartbeat(GuardedConnection("default", "heartbeat"), list, lambda: said)
    beat.run_once()
    row = Worker.objects.get()
    assert (row.name, row.queues, row.slots, row.in_flight, row.stuck_slots) == ("host", ["mail"], 8, 2, 1)
    assert row.stopped_at is None
    with CaptureQueriesContext(connection) as queries:
        beat.run_once()
    assert len(queries) == 0, "not with every look"
    beat.farewell()
    assert Worker.objects.get().stopped_at is not None
    beat.database.hang_up()
