"""The reap statement: which runs it ends, and that it judges them as ``decide`` does."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import override_settings

from pulse_django import conf
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import Budget, Cancel, DeadLetter, Retry, decide
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.outcomes import OutcomeName, Stalled, TimedOut, WorkerLost
from pulse_django.queue.words.states import Status
from tests.database import on_empty_tables
from tests.factories import lease_of, make_job, now
from tests.faults import combined, each_of
from tests.queue.steps import claim_one, expire, may_give_up, sql

pytestmark = pytest.mark.usefixtures("pulse_db")

OVER = {
    "expired": WorkerLost(),
    "overdue": TimedOut(),
    "stalled": Stalled(),
}
BUDGETS = [
    Budget(attempts=1, refunds=0, max_attempts=10),
    Budget(attempts=3, refunds=0, max_attempts=10),
    Budget(attempts=12, refunds=9, max_attempts=10),
    Budget(attempts=10, refunds=0, max_attempts=10),
    Budget(attempts=11, refunds=1, max_attempts=10),
    Budget(attempts=1, refunds=0, max_attempts=1),
    Budget(attempts=32_000, refunds=0, max_attempts=32_767),
    Budget(attempts=2, refunds=0, max_attempts=10, cancel_requested=True),
    Budget(attempts=10, refunds=0, max_attempts=10, cancel_requested=True),
    Budget(attempts=4, refunds=0, max_attempts=10, losses=3),
    Budget(attempts=5, refunds=0, max_attempts=10, losses=4),
    Budget(attempts=10, refunds=0, max_attempts=10, losses=9),
    Budget(attempts=5, refunds=0, max_attempts=10, losses=4, cancel_requested=True),
    Budget(attempts=1, refunds=0, max_attempts=10, max_lost_workers=1),
    Budget(attempts=7, refunds=0, max_attempts=10, losses=6, max_lost_workers=8),
    Budget(attempts=1, refunds=0, max_attempts=1, count_lost_workers=False),
    Budget(attempts=4, refunds=3, max_attempts=1, losses=3, count_lost_workers=False),
    Budget(attempts=5, refunds=4, max_attempts=1, losses=4, count_lost_workers=False),
    Budget(attempts=3, refunds=0, max_attempts=10, losses=2, max_lost_workers=3, count_lost_workers=False),
    Budget(attempts=1, refunds=0, max_attempts=1, count_lost_workers=False, cancel_requested=True),
    Budget(attempts=1, refunds=0, max_attempts=1, max_lost_workers=0),
    # Of jobs with give_up_after: a retry is too late, or is not.
    Budget(attempts=3, refunds=0, max_attempts=10, retries_for=-60.0),
    Budget(attempts=3, refunds=0, max_attempts=10, retries_for=3_000.0),
    Budget(attempts=10, refunds=0, max_attempts=10, retries_for=-60.0),
    Budget(attempts=5, refunds=0, max_attempts=10, losses=4, retries_for=-60.0),
    Budget(attempts=1, refunds=0, max_attempts=1, count_lost_workers=False, retries_for=-60.0),
    Budget(attempts=1, refunds=0, max_attempts=10, cancel_requested=True, retries_for=-60.0),
]
HOUR = timedelta(hours=1)


def reap_and_decide(why: str, budget: Budget) -> None:
    job = make_job(
        Status.RUNNING,
        **{why: True},
        attempts=budget.attempts,
        refunds=budget.refunds,
        max_attempts=budget.max_attempts,
        losses=budget.losses,
        max_lost_workers=budget.max_lost_workers,
        count_lost_workers=budget.count_lost_workers,
        cancel_requested_at=now() if budget.cancel_requested else None,
        created_at=now(-HOUR),
        give_up_after=None if budget.retries_for is None else HOUR + timedelta(seconds=budget.retries_for),
    )
    due_before = job.next_run_at
    with override_settings(PULSE={"RETRY_JITTER": 0.0}):
        [reaped] = Job.objects.reap()
        expected = decide(OVER[why], budget, fleet=conf.current().backoff)
    job.refresh_from_db()
    entry = Attempt.objects.get()

    match expected:
        case Retry(delay, reason, refund):
            assert (
                job.refunds - budget.refunds == int(refund) == int(not budget.count_lost_workers and why == "expired")
            )
            assert (job.status, job.last_error) == (Status.RETRYING, reason)
            assert abs((job.next_run_at - entry.finished_at) - delay) < timedelta(milliseconds=500)
            assert job.finished_at is None
        case DeadLetter(reason):
            assert (job.status, job.last_error) == (Status.DEAD_LETTERED, reason)
            assert job.finished_at
            assert job.next_run_at == due_before
        case Cancel():
            assert job.status == Status.CANCELLED
            assert job.finished_at
        case _:
            raise AssertionError(expected)

    assert reaped.status == job.status
    assert reaped.outcome == entry.outcome == OVER[why].name
    assert entry.message == OVER[why].reason
    assert job.losses == budget.losses + int(why == "expired")
    assert job.attempts == budget.attempts
    assert job.refunds == budget.refunds or isinstance(expected, Retry)
    assert (reaped.lease, reaped.token) == (lease_of_entry(entry), entry.token)


@each_of(*combined(BUDGETS, OVER), around=on_empty_tables)
def test_the_reap_statement_and_decide_are_the_same_rule(*, budget: Any, why: Any) -> None:
    reap_and_decide(why, budget)


def lease_of_entry(entry: Attempt) -> Lease:
    return Lease(entry.job_id, entry.worker, entry.number)


def test_the_jitter_of_the_statement_stays_within_its_share() -> None:
    for _ in range(200):
        make_job(Status.RUNNING, expired=True, attempts=3)
    [(before,)] = sql("SELECT clock_timestamp()")
    with override_settings(PULSE={"RETRY_JITTER": 0.2}):
        Job.objects.reap()
    [(after,)] = sql("SELECT clock_timestamp()")
    due = [job.next_run_at for job in Job.objects.all()]
    assert before + timedelta(seconds=7.2) <= min(due) < after + timedelta(seconds=8.5)
    assert before + timedelta(seconds=9.5) < max(due) <= after + timedelta(seconds=10.8)


def test_healthy_runs_are_spared() -> None:
    make_job(Status.RUNNING)
    make_job(Status.RUNNING, deadline=now(timedelta(seconds=60)), progress_timeout=timedelta(seconds=60))
    make_job(
        Status.RUNNING, progress_timeout=timedelta(seconds=60), progress_at=now(timedelta(days=-1))
    )  # of an earlier run
    make_job(Status.RUNNING, stalled=True, progress_at=now())  # silent at first, and then not
    assert Job.objects.reap() == []


def test_progress_reported_with_a_heartbeat_ends_a_stall() -> None:
    job = make_job(Status.RUNNING, stalled=True)
    Job.objects.heartbeat([lease_of(job)], {lease_of(job): '{"done": 1}'})
    job.refresh_from_db()
    assert job.progress == {"done": 1}
    assert Job.objects.reap() == []


def test_a_heartbeat_without_progress_does_not_hide_a_stall() -> None:
    job = make_job(Status.RUNNING, stalled=True, progress={"done": 1})
    assert Job.objects.heartbeat([lease_of(job)]).alive
    [reaped] = Job.objects.reap()
    assert reaped.outcome == OutcomeName.STALLED
    assert Job.objects.get().progress == {"done": 1}  # the next attempt resumes from it


def test_a_run_past_its_deadline_is_ended_though_its_worker_beats() -> None:
    job = make_job(Status.RUNNING, overdue=True)
    assert Job.objects.heartbeat([lease_of(job)]).alive
    [reaped] = Job.objects.reap()
    assert reaped.outcome == OutcomeName.TIMED_OUT
    assert Job.objects.heartbeat([lease_of(job)]).lost


def test_a_reap_is_bounded() -> None:
    for _ in range(5):
        make_job(Status.RUNNING, expired=True)
    assert [len(Job.objects.reap(limit=2)) for _ in range(4)] == [2, 2, 1, 0]


def test_a_poison_job_is_dead_after_exactly_its_budget() -> None:
    job = make_job(max_attempts=3)
    runs = 0
    with override_settings(PULSE={"RETRY_BACKOFF_CAP": 0.001, "RETRY_JITTER": 0}):
        while Job.objects.get().status != Status.DEAD_LETTERED:
            claims = Job.objects.claim(Identity(f"w{runs}"))
            if claims:
                runs += 1
                expire(job)
                Job.objects.reap()
    job.refresh_from_db()
    assert (runs, job.attempts, job.losses) == (3, 3, 3)
    assert job.last_error == "worker lease expired"
    assert Attempt.objects.filter(outcome="WORKER_LOST").count() == 3


def test_four_reapers_at_once_end_every_run_exactly_once() -> None:
    Job.objects.enqueue_many(NewJob(task="tests.add") for _ in range(2_000))
    while Job.objects.claim(Identity("doomed"), limit=500):
        pass
    Job.objects.all().update(lease_until=now(timedelta(seconds=-1)))
    gate = threading.Barrier(4)

    def reap_all(_: int) -> list[int]:
        gate.wait()
        mine: list[int] = []
        try:
            while Job.objects.reapable().exists():
                with may_give_up():
                    mine += [one.lease.job_id for one in Job.objects.reap(limit=100)]
        finally:
            connection.close()
        return mine

    with ThreadPoolExecutor(4) as pool:
        shares = list(pool.map(reap_all, range(4)))
    everything = [job_id for share in shares for job_id in share]
    assert len(everything) == len(set(everything)) == 2_000
    assert Attempt.objects.count() == 2_000


def test_the_next_attempt_of_a_reaped_job_sees_what_the_last_one_saved() -> None:
    job = make_job()
    first = claim_one(Identity("a"))
    Job.objects.heartbeat([first.lease], {first.lease: '{"page": 7}'})
    expire(job)
    Job.objects.reap()
    Job.objects.filter(pk=job.pk).update(next_run_at=now())
    assert claim_one(Identity("b")).progress == {"page": 7}
