from __future__ import annotations

import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from pulse_django.models import Job, Pause
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.states import Status
from tests.factories import make_job, now
from tests.queue.steps import claim_one, sql

pytestmark = pytest.mark.usefixtures("pulse_db")


def claimed_ids(claims: list[Claim]) -> list[int]:
    return [claim.job_id for claim in claims]


def test_a_claim_sets_everything_at_once(worker: Identity) -> None:
    job = make_job(
        args=[1, "x"],
        kwargs={"k": None},
        timeout=timedelta(minutes=5),
        progress={"done": 3},
        refunds=1,
        attempts=4,
    )
    claim = claim_one(worker)
    job.refresh_from_db()
    assert job.status == Status.RUNNING
    assert job.attempts == claim.attempt == 5
    assert job.locked_by == claim.lease.holder
    assert job.token == claim.token
    assert job.started_at is not None
    assert job.lease_until is not None
    assert job.deadline is not None
    assert timedelta(seconds=29) < job.lease_until - job.started_at < timedelta(seconds=31)
    assert timedelta(minutes=4) < job.deadline - job.started_at < timedelta(minutes=6)
    assert (claim.args, claim.kwargs, claim.progress) == ([1, "x"], {"k": None}, {"done": 3})
    assert (claim.ttl, claim.budget.counted, claim.budget.left) == (timedelta(seconds=30), 4, 6)


def test_a_job_may_have_a_lease_of_its_own_length(worker: Identity) -> None:
    make_job(lease_ttl=timedelta(seconds=5))
    claim = claim_one(worker)
    job = Job.objects.get()
    assert claim.ttl == timedelta(seconds=5)
    assert job.lease_until is not None
    assert job.started_at is not None
    assert timedelta(seconds=4) < job.lease_until - job.started_at < timedelta(seconds=6)
    Job.objects.heartbeat([claim.lease])
    [(left,)] = sql("SELECT lease_until - clock_timestamp() FROM pulse_django_job")
    assert timedelta(seconds=4) < left <= timedelta(seconds=5)


def test_higher_priorities_then_longer_waits_come_first_unless_a_lane_is_aged(worker: Identity) -> None:
    late = make_job(next_run_at=now(timedelta(seconds=-1)))
    early = make_job(next_run_at=now(timedelta(seconds=-9)))
    urgent = make_job(priority=5)
    idle = make_job(priority=-5, next_run_at=now(timedelta(hours=-1)))
    aged = {Lane("default", 0): 6}
    assert claimed_ids(Job.objects.claim(worker, limit=1, lanes=Job.objects.lanes(), aged=aged)) == [early.pk]
    assert claimed_ids(Job.objects.claim(worker, limit=10)) == [urgent.pk, late.pk, idle.pk]


def test_nothing_is_claimed_before_its_time_or_for_a_limit_of_nothing(worker: Identity) -> None:
    for status in (Status.PENDING, Status.RETRYING):
        make_job(status, next_run_at=now(timedelta(seconds=60)))
    assert Job.objects.claim(worker, limit=10) == []
    make_job()
    assert Job.objects.claim(worker, limit=0) == []
    assert Job.objects.claim(worker, limit=-1) == []
    assert Job.objects.claim(worker, lanes=[]) == []


def test_no_more_than_the_limit_is_claimed_over_many_lanes(worker: Identity) -> None:
    for queue in "abc":
        for priority in (-1, 0, 1):
            for _ in range(3):
                make_job(queue=queue, priority=priority)
    assert len(Job.objects.claim(worker, limit=7)) == 7
    assert Job.objects.running().count() == 7
    assert [claim.priority for claim in Job.objects.claim(worker, limit=2)] == [1, 1]


def test_only_the_lanes_that_were_asked_for_are_claimed_from_and_once(worker: Identity) -> None:
    make_job(queue="a")
    wanted = [make_job(queue="b", priority=3).pk for _ in range(4)]
    make_job(queue="b", priority=4)
    lanes = [Lane("b", 3), Lane("nowhere", 0), Lane("b", 3)]
    assert claimed_ids(Job.objects.claim(worker, limit=9, lanes=lanes)) == wanted


def test_queues_of_equal_priority_take_turns(worker: Identity) -> None:
    for queue in ("a", "b", "c"):
        for _ in range(2):
            make_job(queue=queue)
    turns = [Job.objects.claim(worker, limit=1, turn=turn)[0].queue for turn in range(6)]
    assert Counter(turns) == {"a": 2, "b": 2, "c": 2}
    assert turns[:3] == ["a", "b", "c"]


def test_a_poisoned_head_of_a_queue_does_not_block_what_is_behind_it(worker: Identity) -> None:
    poison = make_job(next_run_at=now(timedelta(hours=-1)))
    behind = make_job()
    assert claim_one(worker).job_id == poison.pk
    assert claim_one(worker).job_id == behind.pk  # while the poison runs


class TestPausedQueues:
    def test_a_paused_queue_is_left_alone_and_its_neighbour_is_not(self, worker: Identity) -> None:
        make_job(queue="paused", priority=50)
        free = make_job(queue="free")
        Pause.objects.pause(queue="paused", reason="supplier is down")
        assert claimed_ids(Job.objects.claim(worker, limit=9)) == [free.pk]


def in_threads(count: int, work: Any) -> list[Any]:
    """Run ``work(n)`` in ``count`` threads that start together, each with a connection of its own."""
    gate = threading.Barrier(count)

    def run(number: int) -> Any:
        gate.wait()
        try:
            return work(number)
        finally:
            connection.close()

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(run, range(count)))


def test_eight_claimers_claim_every_one_of_5000_jobs_exactly_once() -> None:
    Job.objects.enqueue_many(NewJob(task="tests.add", queue=f"q{n % 5}", priority=n % 3) for n in range(5_000))

    def claim_all(number: int) -> list[int]:
        me, mine, turn = Identity(f"w{number}"), [], 0
        while Job.objects.claimable().exists():
            turn += 1
            mine += claimed_ids(Job.objects.claim(me, limit=37, turn=turn))
        return mine

    shares = in_threads(8, claim_all)
    everything = [job_id for share in shares for job_id in share]
    assert len(everything) == len(set(everything)) == 5_000
    assert set(Job.objects.values_list("status", "attempts")) == {(Status.RUNNING, 1)}
    assert Job.objects.values("token").distinct().count() == 5_000
