"""One bad row or value fails itself, and neither its batch nor what comes after it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from pulse_django.models import Attempt, Job, Pause
from pulse_django.queue.words.decisions import Complete, DeadLetter, Postpone, Retry
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.outcomes import Failed, Snoozed, Succeeded, WorkerLost
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from tests.database import on_empty_tables
from tests.factories import AttemptFactory, lease_of, make_job
from tests.faults import each_of
from tests.queue.steps import claim_one, expire, next_run_is_due, sql
from tests.rival import Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")

CENTURIES = timedelta(days=365 * 9_000)


class TestReap:
    def test_a_ledger_that_was_there_before_its_job_does_not_stop_the_fleet(self) -> None:
        """As after a TRUNCATE of the jobs that restarted their ids."""
        haunted, other = make_job(Status.RUNNING, expired=True), make_job(Status.RUNNING, expired=True)
        AttemptFactory(job=haunted, number=1, outcome="SUCCEEDED")
        assert {reaped.lease.job_id for reaped in Job.objects.reap()} == {haunted.pk, other.pk}

    def test_a_row_that_cannot_be_reaped_leaves_the_others_to_be(self, caplog: pytest.LogCaptureFixture) -> None:
        jobs = [make_job(Status.RUNNING, expired=True) for _ in range(4)]
        with a_rule_against(jobs[1].pk):
            assert {reaped.lease.job_id for reaped in Job.objects.reap()} == {
                job.pk for job in jobs if job is not jobs[1]
            }
            assert f"Reaping job {jobs[1].pk} failed" in caplog.text
        assert len(Job.objects.reap()) == 1

    def test_a_batch_that_is_refused_is_halved(self) -> None:
        """One of 64 costs the others a dozen statements, and not 64."""
        jobs = [make_job(Status.RUNNING, expired=reaps) for reaps in (True, False) for _ in range(64)]
        with a_rule_against(jobs[40].pk), CaptureQueriesContext(connection) as sent:
            assert len(Job.objects.reap()) == 63
        reaps = sum("UPDATE pulse_django_job_hot" in one["sql"] for one in sent)
        failed = Failed(ErrorReport.of(ValueError("x")))
        reports = [Report(lease_of(job), failed, Retry(timedelta(), "x")) for job in jobs[64:]]
        with a_rule_against(jobs[100].pk), CaptureQueriesContext(connection) as sent:
            with pytest.raises(IntegrityError):
                Job.objects.settle(reports)
            settled = Job.objects.filter(pk__in=[job.pk for job in jobs[64:]], status=Status.RETRYING)
            assert settled.count() == 63, "before the error is raised"
        settles = sum("UPDATE pulse_django_job_hot" in one["sql"] for one in sent)
        assert max(reaps, settles) < 24

    @each_of(0, -1, around=on_empty_tables)
    def test_a_limit_of_nothing_is_a_mistake_and_harms_no_transaction(self, *, limit: Any) -> None:
        with transaction.atomic():
            with pytest.raises(ValueError, match="limit"):
                Job.objects.reap(limit=limit)
            with pytest.raises(ValueError, match="limit"):
                Job.objects.prune(Status.COMPLETED, older_than=timedelta(), limit=limit)
            make_job()


class a_rule_against:  # noqa: N801 - reads as a phrase
    """A constraint that nobody foresaw: the ledger refuses rows of one job."""

    def __init__(self, job_id: int) -> None:
        self.job_id = job_id

    def __enter__(self) -> None:
        sql(f"ALTER TABLE pulse_django_attempt ADD CONSTRAINT unforeseen CHECK (job_id <> {self.job_id})")

    def __exit__(self, *_: object) -> None:
        sql("ALTER TABLE pulse_django_attempt DROP CONSTRAINT unforeseen")


class TestClaim:
    def test_arguments_that_cannot_be_read_are_their_own_jobs_trouble(self) -> None:
        sql("INSERT INTO pulse_django_job (task, args) VALUES ('tests.add', '[1e5000]')")
        for _ in range(5):
            make_job()
        claims = Job.objects.claim(Identity("me"), limit=10)
        assert len(claims) == 6
        bad = claims[0]
        with pytest.raises(ValueError, match="4300"):
            _ = bad.args
        assert all(claim.args == [] for claim in claims[1:])

    def test_what_cannot_be_read_cannot_be_stored(self) -> None:
        with pytest.raises(IntegrityError, match="pulse_job_instant_can_be_read"):
            sql("INSERT INTO pulse_django_job (task, next_run_at) VALUES ('tests.add', '2001-01-01 BC')")
        with pytest.raises(IntegrityError, match="pulse_job_durations_are_sensible"):
            sql("INSERT INTO pulse_django_job (task, timeout) VALUES ('tests.add', '293000 years')")

    def test_each_run_starts_anew_and_tokens_rise_also_when_an_older_job_is_claimed_again(self) -> None:
        old, _new = make_job(), make_job()
        first, second = claim_one(Identity("a")), claim_one(Identity("a"))
        started = Job.objects.get(pk=old.pk).started_at
        Job.objects.release([first.lease])
        third = claim_one(Identity("b"))
        assert third.job_id == old.pk
        assert first.token < second.token < third.token
        assert started < Job.objects.get(pk=old.pk).started_at


class TestHeartbeat:
    @each_of('"\\u0000"', "nope", '"\\ud800"', "", around=on_empty_tables)
    def test_progress_that_cannot_be_stored_costs_no_lease(
        self, caplog: pytest.LogCaptureFixture, *, progress: Any
    ) -> None:
        caplog.clear()
        jobs = [make_job(Status.RUNNING) for _ in range(3)]
        leases = [lease_of(job) for job in jobs]
        beat = Job.objects.heartbeat(leases, {leases[0]: progress, leases[1]: '{"done": 1}'})
        assert beat.alive == set(leases)
        assert "Saving the progress of 2 jobs failed" in caplog.text

    def test_progress_without_bounds_is_refused_and_costs_no_lease(self) -> None:
        job = make_job(Status.RUNNING)
        huge = '"' + "x" * 40_000_000 + '"'
        assert Job.objects.heartbeat([lease_of(job)], {lease_of(job): huge}).alive

    def test_a_zombie_whose_job_runs_again_is_lost_also_while_that_row_is_locked(self, rival: Rival) -> None:
        job = make_job()
        zombie = claim_one(Identity("a"))
        expire(job)
        Job.objects.reap()
        next_run_is_due(job)
        claim_one(Identity("b"))
        rival.lock_row(job.pk)
        assert Job.objects.heartbeat([zombie.lease]).lost == {zombie.lease}


class TestSettle:
    @each_of(
        (Failed(ErrorReport(error_class="x" * 300, message="no")), Retry(timedelta(), "\x00" * 5_000)),
        (Failed(ErrorReport(error_class="a\x00b", message="no")), Retry(timedelta(), "\x00" * 5_000)),
        (
            Failed(ErrorReport(error_class="E", message="\x00\ud800" * 100_000, traceback="\x00")),
            Retry(timedelta(), "\x00" * 5_000),
        ),
        *((Snoozed(delay), Postpone(delay)) for delay in (timedelta.max, timedelta.min, CENTURIES)),
        around=on_empty_tables,
    )
    def test_a_report_from_who_knows_where_is_made_to_fit(self, *, outcome: Any, decision: Any) -> None:
        good, bad = make_job(Status.RUNNING), make_job(Status.RUNNING)
        reports = [Report(lease_of(bad), outcome, decision), Report(lease_of(good), Succeeded(), Complete())]
        assert Job.objects.settle(reports).accepted == {
            lease_of(bad): Status.PENDING if isinstance(outcome, Snoozed) else Status.RETRYING,
            lease_of(good): Status.COMPLETED,
        }
        assert len(list(Job.objects.all())) == 2  # and everything can still be read

    @each_of("nope", '"\\u0000"', '"\\ud800"', around=on_empty_tables)
    def test_a_result_that_is_not_json_is_a_dead_letter_and_its_neighbours_complete(self, *, result: Any) -> None:
        good, bad = make_job(Status.RUNNING), make_job(Status.RUNNING)
        reports = [
            Report(lease_of(bad), Succeeded(result), Complete(result)),
            Report(lease_of(good), Succeeded(), Complete()),
        ]
        assert Job.objects.settle(reports).accepted == {
            lease_of(bad): Status.DEAD_LETTERED,
            lease_of(good): Status.COMPLETED,
        }
        bad.refresh_from_db()
        assert "storing its report failed" in bad.last_error

    def test_progress_that_cannot_be_stored_does_not_spoil_the_report(self) -> None:
        job = make_job(Status.RUNNING)
        report = Report(lease_of(job), Succeeded("1"), Complete("1"), progress="nope")
        assert Job.objects.settle([report]).accepted == {lease_of(job): Status.COMPLETED}

    def test_a_ledger_that_has_the_row_already_does_not_keep_the_run_from_ending(self) -> None:
        job = make_job(Status.RUNNING)
        AttemptFactory(job=job, number=1, worker="another")
        assert Job.objects.settle([Report(lease_of(job), Succeeded(), Complete())]).accepted

    def test_of_two_reports_on_one_lease_in_a_batch_the_first_counts(self) -> None:
        job = make_job(Status.RUNNING)
        lease = lease_of(job)
        failed = Failed(ErrorReport.of(ValueError("no")))
        answer = Job.objects.settle(
            [Report(lease, Succeeded("1"), Complete("1")), Report(lease, failed, DeadLetter("no"))]
        )
        assert answer.accepted == {lease: Status.COMPLETED}
        assert answer.lost == frozenset()
        entry = Attempt.objects.get()
        assert (entry.outcome, entry.late_outcome) == ("SUCCEEDED", "FAILED")

    def test_a_cancel_wins_over_a_dead_letter_as_it_does_in_reap(self) -> None:
        job = make_job(Status.RUNNING, attempts=10)
        Job.objects.request_cancel([job.pk])
        answer = Job.objects.settle([Report(lease_of(job), WorkerLost(), DeadLetter("worker lease expired"))])
        assert answer.accepted == {lease_of(job): Status.CANCELLED}
        job.refresh_from_db()
        assert job.last_error == "worker lease expired"

    def test_a_holder_that_never_had_the_run_writes_nothing_into_its_row(self) -> None:
        job = make_job(Status.RUNNING)
        Job.objects.settle([Report(lease_of(job), Succeeded(), Complete())])
        stranger = Lease(job.pk, "stranger:boot:1", 1)
        failed = Failed(ErrorReport.of(ValueError("no")))
        assert Job.objects.settle([Report(stranger, failed, DeadLetter("no"))]).lost == {stranger}
        assert Job.objects.settle([Report(stranger, Succeeded(), Complete())]).lost == {stranger}
        assert Attempt.objects.get().late_outcome == ""

    def test_a_row_that_somebody_locked_holds_up_nobody_who_does_not_wait(self, rival: Rival) -> None:
        free, locked = make_job(Status.RUNNING), make_job(Status.RUNNING)
        rival.begin()
        rival.run(Job.objects.request_cancel, [locked.pk])  # in a view, say, that takes its time
        reports = [Report(lease_of(job), Succeeded(), Complete()) for job in (free, locked)]
        answer = Job.objects.settle(reports, wait=False)
        assert answer.accepted == {lease_of(free): Status.COMPLETED}
        assert answer.skipped == {lease_of(locked)}
        with transaction.atomic():  # of a caller's, too
            assert Job.objects.settle(reports[1:], wait=False).skipped == {lease_of(locked)}
        rival.commit()
        assert Job.objects.settle(reports, wait=False).accepted == {lease_of(locked): Status.COMPLETED}

    def test_who_does_not_wait_is_still_told_of_a_lost_lease(self) -> None:
        job = make_job(Status.RUNNING, expired=True)
        lease = lease_of(job)
        Job.objects.reap()
        answer = Job.objects.settle([Report(lease, Succeeded(), Complete())], wait=False)
        assert (answer.lost, answer.skipped) == ({lease}, frozenset())


def test_late_verdicts_and_prunes_lock_attempts_in_one_order(rival: Rival) -> None:
    """Attempt ids may run against job ids: the ledger of the older job was written last."""
    first, second = make_job(Status.COMPLETED), make_job(Status.COMPLETED)
    AttemptFactory(job=second, outcome="WORKER_LOST")
    AttemptFactory(job=first, outcome="WORKER_LOST")
    mine = backend_pid()
    with transaction.atomic():
        sql("SELECT id FROM pulse_django_attempt WHERE job_id = %s FOR UPDATE", first.pk)
        late = rival.start(
            Job.objects.settle, [Report(lease_of(job), Succeeded(), Complete()) for job in (first, second)]
        )
        rival.wait_until_blocked(by=mine)  # on the first row, in the order of jobs, and holding nothing
        sql("SELECT id FROM pulse_django_attempt WHERE job_id = %s FOR UPDATE NOWAIT", second.pk)
    assert len(late.result(20).lost) == 2


class TestBounds:
    def ask_for(self, delay: timedelta) -> None:
        with transaction.atomic():
            for act in (
                lambda: Job.objects.retry([1], delay=delay),
                lambda: Job.objects.release([], delay=delay),
                lambda: Job.objects.prune(Status.COMPLETED, older_than=delay),
                lambda: Pause.objects.pause(queue="default", duration=delay),
            ):
                with pytest.raises(ValueError, match=r"must be positive|is not between|is longer than"):
                    act()
            make_job()

    @each_of(timedelta(seconds=-1), CENTURIES, timedelta.max, around=on_empty_tables)
    def test_what_an_operator_asks_for_is_refused_before_it_breaks_a_transaction(self, *, delay: Any) -> None:
        self.ask_for(delay)

    def test_a_pause_that_ended_is_not_continued_by_the_next(self) -> None:
        Pause.objects.pause(queue="default", duration=timedelta(hours=1))
        sql("UPDATE pulse_django_pause SET paused_at = now() - interval '2 h', paused_until = now() - interval '1 h'")
        Pause.objects.pause(queue="default")
        [(age,)] = sql("SELECT clock_timestamp() - paused_at FROM pulse_django_pause")
        assert age < timedelta(minutes=1)

    def test_a_megabyte_each_is_more_than_one_statement(self, django_assert_num_queries: Any) -> None:
        big = [NewJob(task="tests.add", args=["x" * 900_000]) for _ in range(20)]
        # BEGIN, COMMIT, two settings, and for each of two chunks its ids and its rows.
        with django_assert_num_queries(2 + 2 + 2 * 2, connection=connection):
            Job.objects.enqueue_many(big)
        assert Job.objects.count() == 20


class TestRelatedManagers:
    """A related manager's filter does not reach our statements, so the verbs refuse to be its."""

    def test_verbs_are_not_asked_of_children_and_questions_are(self) -> None:
        parent = make_job()
        child, stranger = make_job(parent=parent), make_job(Status.COMPLETED)
        verbs: list[Any] = [
            parent.children.reap, parent.children.lanes, lambda: parent.children.claim(Identity("me")),
            lambda: parent.children.prune(Status.COMPLETED, older_than=timedelta()),
        ]  # fmt: skip
        for verb in verbs:
            with pytest.raises(TypeError, match=r"Job\.objects"):
                verb()
        stranger.refresh_from_db()
        assert parent.children.due().get() == child
