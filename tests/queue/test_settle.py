from __future__ import annotations

from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, transaction

from pulse_django import api
from pulse_django.managers import JobManager
from pulse_django.models import Attempt, Job
from pulse_django.queue import settle as settling
from pulse_django.queue.database.transactions import Row
from pulse_django.queue.words.decisions import GAVE_UP, Budget, Cancel, Complete, DeadLetter, Postpone, Retry, decide
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import (
    Cancelled,
    Discarded,
    Failed,
    Released,
    Snoozed,
    Succeeded,
    WorkerLost,
    returned,
)
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from tests.database import on_empty_tables
from tests.factories import lease_of, make_job, now
from tests.faults import each_of
from tests.queue.steps import claim_one, sql, success

pytestmark = pytest.mark.usefixtures("pulse_db")

MINUTE = timedelta(minutes=1)


def test_a_completion_stores_the_result_and_gives_the_lease_up() -> None:
    """Every run that ended has one row in the ledger, with all that is known."""
    make_job()
    claim = claim_one(Identity("me"))
    started_at = Job.objects.get().started_at
    error = ErrorReport.of(ValueError("no"))
    Job.objects.settle([Report(claim.lease, Failed(error), Retry(timedelta(), error.summary))])
    entry = Attempt.objects.get()
    assert (entry.job_id, entry.number, entry.token) == (claim.job_id, 1, claim.token)
    assert (entry.worker, entry.started_at) == (claim.lease.holder, started_at)
    assert (entry.outcome, entry.error_class, entry.message) == ("FAILED", "builtins.ValueError", "no")
    assert "ValueError: no" in entry.traceback
    assert entry.finished_at >= entry.started_at
    claim = claim_one(Identity("me"))
    Job.objects.settle([Report(claim.lease, Succeeded('{"sum": 3}'), Complete('{"sum": 3}'))])
    job = Job.objects.get()
    assert (job.status, job.result, job.last_error) == (Status.COMPLETED, {"sum": 3}, "ValueError: no")
    assert (job.locked_by, job.lease_until, job.token, job.deadline) == (None, None, None, None)
    assert job.finished_at
    assert (job.attempts, job.refunds) == (2, 0)


def test_a_retry_waits_out_its_delay_and_keeps_the_error() -> None:
    job = make_job(Status.RUNNING)
    Job.objects.settle(
        [Report(lease_of(job), Failed(ErrorReport.of(ValueError("no"))), Retry(MINUTE, "ValueError: no"))]
    )
    job.refresh_from_db()
    assert (job.status, job.last_error, job.finished_at) == (Status.RETRYING, "ValueError: no", None)
    assert job.started_at is not None
    assert timedelta(seconds=55) < job.next_run_at - job.started_at < timedelta(seconds=65)


def test_a_snooze_does_not_count_and_does_not_lower_attempts() -> None:
    job = make_job(Status.RUNNING, attempts=10)  # its last one
    Job.objects.settle([Report(lease_of(job), Snoozed(MINUTE), Postpone(MINUTE))])
    job.refresh_from_db()
    assert (job.status, job.attempts, job.refunds) == (Status.PENDING, 10, 1)


def test_a_lost_worker_is_counted() -> None:
    job = make_job(Status.RUNNING, attempts=3, losses=1)
    Job.objects.settle([Report(lease_of(job), WorkerLost("killed by signal 9"), Retry(MINUTE, "killed by signal 9"))])
    job.refresh_from_db()
    assert (job.losses, job.last_error) == (2, "killed by signal 9")
    assert Attempt.objects.get().message == "killed by signal 9"


@each_of((Cancelled("enough"), "enough"), (Discarded("gone"), "gone"), (Cancelled(), "customer left"))
def test_a_cancelled_run_says_why_or_keeps_the_reason_of_the_request(*, outcome: Any, reason: Any) -> None:
    job = make_job(Status.RUNNING)
    Job.objects.request_cancel([job.pk], reason="customer left")
    Job.objects.settle([Report(lease_of(job), outcome, Cancel(outcome.reason))])
    job.refresh_from_db()
    assert (job.status, job.cancel_reason) == (Status.CANCELLED, reason)


def test_a_batch_is_settled_report_by_report() -> None:
    kept, lost, other = (make_job(Status.RUNNING) for _ in range(3))
    leases = [lease_of(job) for job in (kept, lost, other)]
    Job.objects.release([leases[1]])
    answer = Job.objects.settle([Report(lease, Succeeded(), Complete()) for lease in reversed(leases)])
    assert set(answer.accepted) == {leases[0], leases[2]}
    assert answer.lost == {leases[1]}


def test_no_reports_are_no_reports() -> None:
    assert Job.objects.settle([]).accepted == {}
    assert Job.objects.heartbeat([]).alive == frozenset()


@each_of("", "\x00", "\x00\ud800", "x" * 100_000, "%s {0} \\ '", around=on_empty_tables)
def test_a_dead_letter_always_has_a_reason_that_can_be_stored(*, reason: Any) -> None:
    job = make_job(Status.RUNNING)
    assert Job.objects.settle([Report(lease_of(job), WorkerLost(reason), DeadLetter(reason))]).accepted
    job.refresh_from_db()
    assert job.status == Status.DEAD_LETTERED
    assert job.last_error
    assert len(job.last_error) <= 2_000


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@each_of(
    *{
        "str raises": Unspeakable(),
        "hostile": ValueError("\x00\ud800\x1b[31m"),
        "10 MB": ValueError("x" * 10_000_000),
        "SystemExit": SystemExit(1),
        "KeyboardInterrupt": KeyboardInterrupt(),
    }.items(),
    around=on_empty_tables,
)
def test_whatever_a_handler_raises_ends_its_attempt(*, case: Any, error: Any) -> None:
    job = make_job(Status.RUNNING)
    outcome = Failed(ErrorReport.of(error))
    decision = decide(outcome, Budget(attempts=1, refunds=0, max_attempts=10))
    assert Job.objects.settle([Report(lease_of(job), outcome, decision)]).accepted == {lease_of(job): Status.RETRYING}
    job.refresh_from_db()
    assert type(error).__name__ in job.last_error


@each_of("nul\x00", "\ud800", float("nan"), {1: "a"}, object(), {1, 2}, b"bytes", print, around=on_empty_tables)
def test_a_result_that_would_be_read_back_changed_is_a_dead_letter_with_a_reason(*, value: Any) -> None:
    job = make_job(Status.RUNNING)
    outcome = returned(value, limit=1_000_000)
    decision = decide(outcome, Budget(attempts=1, refunds=0, max_attempts=10))
    Job.objects.settle([Report(lease_of(job), outcome, decision)])
    job.refresh_from_db()
    assert job.status == Status.DEAD_LETTERED
    assert job.last_error.startswith("UnstorableResult: result: ")


def test_a_lost_worker_costs_nothing_where_its_task_says_so() -> None:
    job = make_job(Status.RUNNING, attempts=1, max_attempts=1, count_lost_workers=False)
    settled = Job.objects.settle([Report(lease_of(job), WorkerLost(), decide(WorkerLost(), job.budget))])
    assert settled.accepted == {lease_of(job): Status.RETRYING}
    job.refresh_from_db()
    assert (job.attempts, job.refunds, job.losses) == (1, 1, 1)


def test_released_jobs_are_due_at_once_and_cost_nothing_or_wait() -> None:
    make_job()
    me = Identity("me")
    claim = claim_one(me)
    assert Job.objects.release([claim.lease]).accepted == {claim.lease: Status.PENDING}
    again = claim_one(me)
    assert (again.attempt, again.budget.counted) == (2, 1)
    Job.objects.release([again.lease], delay=MINUTE)
    assert Job.objects.claim(me) == []
    assert set(Attempt.objects.values_list("outcome", flat=True)) == {"RELEASED"}


class TestBatchesOfBothKinds:
    """Completions and other reports have a statement each, but for a transaction of the caller's."""

    def reports(self) -> list[Report]:
        jobs = [make_job(Status.RUNNING) for _ in range(4)]
        retry = Failed(ErrorReport.of(ValueError("no"))), Retry(timedelta(minutes=1), "no")
        completed = Succeeded("7"), Complete("7")
        return [Report(lease_of(job), *(retry if n % 2 else completed)) for n, job in enumerate(jobs)]

    def statuses(self, reports: list[Report]) -> list[str]:
        return [Job.objects.get(pk=report.lease.job_id).status for report in reports]

    @each_of(False, True, around=on_empty_tables)
    def test_each_gets_its_own_end_and_result(self, *, within: Any) -> None:
        reports = self.reports()
        with transaction.atomic() if within else nullcontext():
            settled = Job.objects.settle(reports)
        assert len(settled.accepted) == 4
        assert self.statuses(reports) == [Status.COMPLETED, Status.RETRYING] * 2
        assert Job.objects.get(pk=reports[0].lease.job_id).result == 7

    def test_if_the_second_statement_fails_its_reports_are_to_be_sent_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first was committed. Sent again, its reports would count as repeated, and no signal would be sent."""
        reports = self.reports()
        real = settling._settle

        def fail(jobs: JobManager, some: list[Report], wait: bool, bare: bool) -> list[Row]:
            if some[0].outcome == Succeeded("7"):
                raise OperationalError("canceling statement due to lock timeout")
            return real(jobs, some, wait, bare)

        with monkeypatch.context() as failing:
            failing.setattr(settling, "_settle", fail)
            settled = Job.objects.settle(reports, wait=False)
            assert settled.accepted.keys() == {reports[1].lease, reports[3].lease}
            assert settled.skipped == {reports[0].lease, reports[2].lease}
            assert not settled.lost
        again = Job.objects.settle([one for one in reports if one.lease in settled.skipped], wait=False)
        assert again.accepted.keys() == settled.skipped
        assert self.statuses(reports) == [Status.COMPLETED, Status.RETRYING] * 2

    def test_results_find_their_jobs_in_any_order(self) -> None:
        jobs = [make_job(Status.RUNNING) for _ in range(6)]
        results = ["null", None, '"a"', "[1, 2]", None, "{}"]
        runs = [(lease_of(job), result) for job, result in zip(jobs, results, strict=True)]
        reports = [Report(lease, Succeeded(result), Complete(result)) for lease, result in runs]
        assert len(Job.objects.settle(reports[::-1], wait=False).accepted) == 6
        stored = [sql("SELECT result::text FROM pulse_django_job WHERE id = %s", job.pk)[0][0] for job in jobs]
        assert stored == results


HOUR = timedelta(hours=1)
ERROR = Failed(ErrorReport.of(ValueError("no")))


def settled(job: Job, outcome: Any, decision: Any) -> Job:
    """End its run with what a worker decided, which did not know how long the run would take."""
    Job.objects.settle([Report(lease_of(job), outcome, decision)])
    return Job.objects.get(pk=job.pk)


def running(allowed: timedelta | None, **columns: Any) -> Job:
    """A run of a job that was enqueued an hour ago."""
    return make_job(Status.RUNNING, created_at=now(-HOUR), give_up_after=allowed, **columns)


@each_of((HOUR + MINUTE, True), (HOUR + 3 * MINUTE, False), (None, False), around=on_empty_tables)
def test_a_retry_that_would_come_too_late_is_a_dead_letter_that_says_so(*, allowed: Any, is_late: Any) -> None:
    job = settled(running(allowed), ERROR, Retry(2 * MINUTE, "ValueError: no"))
    if is_late:
        assert (job.status, job.last_error) == (Status.DEAD_LETTERED, f"{GAVE_UP} ValueError: no")
        assert job.finished_at
    else:
        assert (job.status, job.last_error) == (Status.RETRYING, "ValueError: no")
        assert allowed is None or job.next_run_at <= job.created_at + allowed
    assert [one.message for one in Attempt.objects.all()] == ["no"]


@each_of(
    (Snoozed(HOUR), Postpone(HOUR), Status.PENDING),
    (Released(), Postpone(timedelta()), Status.PENDING),
    (Cancelled(), Cancel("enough"), Status.CANCELLED),
    around=on_empty_tables,
)
def test_what_is_no_retry_is_not_limited(*, outcome: Any, decision: Any, status: Any) -> None:
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
