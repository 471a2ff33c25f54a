"""No retry is scheduled later than ``give_up_after`` allows, by the database's clock."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pulse_django import api
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import GAVE_UP, Cancel, DeadLetter, Postpone, Retry
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import Cancelled, Failed, Released, Snoozed, WorkerLost
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from tests.database import empty_tables
from tests.factories import lease_of, make_job, now
from tests.faults import each
from tests.queue.steps import claim_one, success

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
ERROR = Failed(ErrorReport.of(ValueError("no")))


def settled(job: Job, outcome: Any, decision: Any) -> Job:
    """End its run with what a worker decided, which did not know how long the run would take."""
    Job.objects.settle([Report(lease_of(job), outcome, decision)])
    return Job.objects.get(pk=job.pk)


def running(allowed: timedelta, **columns: Any) -> Job:
    """A run of a job that was enqueued an hour ago."""
    return make_job(Status.RUNNING, created_at=now(-HOUR), give_up_after=allowed, **columns)


def test_a_retry_that_would_come_too_late_is_a_dead_letter_that_says_so() -> None:
    job = settled(running(HOUR + MINUTE), ERROR, Retry(2 * MINUTE, "ValueError: no"))
    assert (job.status, job.last_error) == (Status.DEAD_LETTERED, f"{GAVE_UP} ValueError: no")
    assert job.finished_at
    assert [one.message for one in Attempt.objects.all()] == ["no"]


def test_a_retry_in_time_is_scheduled() -> None:
    job = settled(running(HOUR + 3 * MINUTE), ERROR, Retry(MINUTE, "ValueError: no"))
    assert (job.status, job.last_error) == (Status.RETRYING, "ValueError: no")
    assert job.next_run_at <= job.created_at + job.give_up_after


def test_a_job_without_a_limit_is_retried_as_before() -> None:
    job = settled(make_job(Status.RUNNING, created_at=now(-24 * HOUR)), ERROR, Retry(HOUR, "ValueError: no"))
    assert (job.status, job.last_error) == (Status.RETRYING, "ValueError: no")


@each(
    [
        (Snoozed(HOUR), Postpone(HOUR), Status.PENDING),
        (Released(), Postpone(timedelta()), Status.PENDING),
        (Cancelled(), Cancel("enough"), Status.CANCELLED),
    ],
    before=empty_tables,
)
def test_what_is_no_retry_is_not_limited(outcome: Any, decision: Any, status: Any) -> None:
    assert settled(running(MINUTE), outcome, decision).status == status


def test_a_dead_letter_keeps_its_own_reason() -> None:
    assert settled(running(MINUTE), ERROR, DeadLetter("ValueError: no")).last_error == "ValueError: no"


def test_a_cancellation_wins() -> None:
    job = running(MINUTE, cancel_requested_at=now())
    assert settled(job, ERROR, Retry(MINUTE, "ValueError: no")).status == Status.CANCELLED


def test_a_batch_is_decided_job_by_job() -> None:
    late, early, done = running(MINUTE), running(2 * HOUR), make_job(Status.RUNNING)
    retry = Retry(MINUTE, "x")
    reports = [Report(lease_of(job), ERROR, retry) for job in (late, early)]
    accepted = Job.objects.settle([*reports, success(done_claim(done))]).accepted
    assert accepted[lease_of(late)] is Status.DEAD_LETTERED
    assert accepted[lease_of(early)] is Status.RETRYING


def done_claim(job: Job) -> Any:
    class Held:
        lease = lease_of(job)

    return Held


def test_a_claim_brings_the_limit_and_for_how_long_it_allows_retries() -> None:
    make_job(created_at=now(-HOUR), give_up_after=HOUR + MINUTE)
    claim: Claim = claim_one(Identity("me"))
    assert claim.options.give_up_after == HOUR + MINUTE
    assert claim.budget.retries_for == pytest.approx(60, abs=20)
    assert Job.objects.get().budget.retries_for == pytest.approx(60, abs=20)


def test_a_reap_that_would_retry_too_late_says_so() -> None:
    running(MINUTE, expired=True)
    [reaped] = Job.objects.reap()
    assert (reaped.status, reaped.reason) == (Status.DEAD_LETTERED, f"{GAVE_UP} worker lease expired")


def test_a_job_that_is_taken_from_its_worker_runs_again_at_once_only_in_time() -> None:
    late, early = running(MINUTE), running(HOUR + MINUTE, attempts=9)  # whose curve would have been too late
    api.release(late.pk, early.pk)
    assert Job.objects.get(pk=late.pk).status == Status.DEAD_LETTERED
    assert Job.objects.get(pk=early.pk).status == Status.RETRYING


def test_a_dead_letter_that_is_retried_by_hand_gets_one_run_and_no_retry() -> None:
    job = settled(running(MINUTE), WorkerLost(), Retry(MINUTE, "x"))
    assert api.retry(job.pk, runs=3).revived == {job.pk}
    again = claim_one(Identity("me"))
    Job.objects.settle([Report(again.lease, ERROR, Retry(timedelta(), "ValueError: no"))])
    assert Job.objects.get(pk=job.pk).status == Status.DEAD_LETTERED
