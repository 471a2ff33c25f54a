"""Jobs leave the hot partition when they are completed or cancelled, and days are made and dropped as a whole."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import IntegrityError, transaction

from pulse_django.health import conditions
from pulse_django.models import Attempt, IdempotencyKey, Job, StoredAttempt
from pulse_django.queue import prune
from pulse_django.queue.ending import carried
from pulse_django.queue.words.decisions import Cancel, Complete, Retry
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Cancelled, Failed, Snoozed, Succeeded
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.states import HOT, Status, era_of
from pulse_django.queue.words.verb_results import Report
from tests.database import on_empty_tables
from tests.factories import AttemptFactory, lease_of, make_job, now, today
from tests.faults import each_of
from tests.queue.steps import claim_one, sql, success
from tests.rival import PATIENCE, Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")

OLD = date(2020, 1, 1)


def era(job: Job | int) -> int:
    return int(Job.objects.values_list("era", flat=True).get(pk=job if isinstance(job, int) else job.pk))


def succeeded(job: Job) -> Report:
    return Report(lease_of(job), Succeeded(), Complete())


def failed(claim: Any) -> Report:
    error = ErrorReport.of(ValueError("no"))
    return Report(claim.lease, Failed(error), Retry(timedelta(), "no"))


class TestLeaving:
    def test_what_is_over_is_in_the_partition_of_the_day_with_all_that_it_was(self) -> None:
        job = make_job(
            queue="mail", priority=7, args=[1], kwargs={"a": "ü"}, parent=make_job(Status.RUNNING), trace="t",
            sensitive="m",
            lease_ttl=timedelta(seconds=9), timeout=timedelta(seconds=8), progress_timeout=timedelta(seconds=7),
            max_attempts=3, max_lost_workers=2, count_lost_workers=False, progress={"done": 1}, payload_bytes=3,
        )  # fmt: skip
        claim = Job.objects.claim(Identity("me"))[0]
        running = Job.objects.get(pk=job.pk)
        Job.objects.settle([Report(claim.lease, Succeeded('{"r": 1}'), Complete('{"r": 1}'))])
        over = Job.objects.get(pk=job.pk)
        assert over.era == today()
        assert (over.status, over.result, over.completed_by) == (Status.COMPLETED, {"r": 1}, claim.lease.holder)
        assert over.completed_token == claim.token
        changed = {"era", "status", "finished_at", "result", "completed_by", "completed_token"}
        leases = {"locked_by", "lease_until", "token", "deadline"}
        kept = [field.attname for field in Job._meta.concrete_fields if field.attname not in changed | leases]
        assert {name: getattr(over, name) for name in kept} == {name: getattr(running, name) for name in kept}
        assert [getattr(over, name) for name in sorted(leases)] == [None] * 4

    def test_every_column_is_carried_or_given_or_belongs_to_a_lease(self) -> None:
        given = {"era", "status", "finished_at", "result", "completed_by", "completed_token"}
        of_a_lease = {"locked_by", "lease_until", "token", "deadline"}
        columns = {str(field.column) for field in Job._meta.concrete_fields}
        of_what_is_not_over = {"unique_key", "unique_until_start", "lane_key", "ready"}
        assert columns == {*carried()} | given | of_a_lease | of_what_is_not_over

    def test_a_mixed_batch_ends_each_run_as_it_should_and_what_runs_again_or_is_dead_stays(self) -> None:
        jobs = [*(make_job() for _ in range(3)), make_job(max_attempts=1)]
        one, two, three, four = Job.objects.claim(Identity("me"), limit=4)
        reports = [success(one), failed(two), Report(three.lease, Cancelled("x"), Cancel("x")), failed(four)]
        ends = [Status.COMPLETED, Status.RETRYING, Status.CANCELLED, Status.DEAD_LETTERED]
        assert Job.objects.settle(reports).accepted == {
            report.lease: status for report, status in zip(reports, ends, strict=True)
        }
        assert [era(job) for job in jobs] == [today(), HOT, today(), HOT]
        outcomes = {"SUCCEEDED", "FAILED", "CANCELLED"}
        assert set(Attempt.objects.values_list("outcome", flat=True)) == outcomes
        assert set(StoredAttempt.objects.values_list("outcome", flat=True)) == outcomes - {"SUCCEEDED"}

    def test_a_job_that_is_cancelled_while_it_waits_leaves_and_one_that_runs_when_it_is_reaped(self) -> None:
        waiting, running = make_job(progress=[1]), make_job(Status.RUNNING, expired=True)
        Job.objects.request_cancel([waiting.pk, running.pk], reason="why")
        assert (era(waiting), era(running)) == (today(), HOT)
        over = Job.objects.get(pk=waiting.pk)
        assert (over.status, over.cancel_reason, over.progress) == (Status.CANCELLED, "why", [1])
        assert over.cancel_requested_at
        Job.objects.reap()
        assert (era(running), Job.objects.get(pk=running.pk).status) == (today(), Status.CANCELLED)

    @each_of(
        {"status": "RUNNING", "finished_at": None},
        {"locked_by": "me"},
        {"lease_until": now()},
        {"finished_at": None},
        {"status": "CANCELLED", "result": [1]},
        {"refunds": -1},
        {"attempts": 11},
        {"losses": 2},
        around=on_empty_tables,
    )
    def test_the_partition_of_a_day_refuses_what_is_not_over(self, *, wrong: Any) -> None:
        job = make_job(Status.COMPLETED)
        with pytest.raises(IntegrityError, match="pulse_job_is_over"), transaction.atomic():
            Job.objects.filter(pk=job.pk).update(**wrong)

    def test_a_statement_that_meets_a_job_which_has_left_passes_it_by(self, rival: Rival) -> None:
        """It took its snapshot before, and waits for another row meanwhile."""
        first, second = make_job(Status.RUNNING), make_job(Status.RUNNING)
        with closing(Rival()) as other:
            rival.lock_row(first.pk)
            asked = other.start(Job.objects.request_cancel, [first.pk, second.pk])
            rival.wait_until_blocked(rival.pid)
            Job.objects.settle([succeeded(second)])
            rival.rollback()
            answer = asked.result(PATIENCE)
        assert (answer.asked, answer.refused) == ({first.pk}, {second.pk})
        assert era(second) == today()

    def test_a_statement_that_waits_for_a_job_which_leaves_finds_it_gone(self, rival: Rival) -> None:
        job = make_job(Status.RUNNING)
        with transaction.atomic():
            Job.objects.settle([succeeded(job)])
            waits = rival.start(Job.objects.settle, [succeeded(job)])
            rival.wait_until_blocked(backend_pid())
        assert waits.result(PATIENCE).repeated == {lease_of(job)}


class TestTheRunThatCompletes:
    def test_is_in_the_ledger_and_has_no_row_of_its_own_as_runs_before_it_have(self) -> None:
        job = make_job()
        Job.objects.settle([failed(claim_one(Identity("me")))])
        claim = claim_one(Identity("me"))
        Job.objects.settle([success(claim)])
        before, run = job.ledger.order_by("number")
        over = Job.objects.get(pk=job.pk)
        assert (run.number, run.token, run.worker, run.outcome) == (2, claim.token, claim.lease.holder, "SUCCEEDED")
        assert (run.started_at, run.finished_at, run.due_at) == (over.started_at, over.finished_at, over.next_run_at)
        assert before.outcome == StoredAttempt.objects.get().outcome == "FAILED"

    def test_a_second_report_is_told_from_another_outcome(self) -> None:
        make_job()
        claim = claim_one(Identity("me"))
        Job.objects.settle([success(claim)])
        assert Job.objects.settle([success(claim)]).repeated == {claim.lease}
        assert not StoredAttempt.objects.exists()
        late = Report(claim.lease, Snoozed(timedelta()), Retry(timedelta(), ""))
        assert Job.objects.settle([late]).lost == {claim.lease}
        [run] = Attempt.objects.all()
        assert (run.outcome, run.late_outcome, run.token) == ("SUCCEEDED", "SNOOZED", claim.token)
        assert Job.objects.settle([success(claim)]).repeated == {claim.lease}  # its row says so now
        assert Attempt.objects.count() == 1


class TestKeys:
    def enqueue(self) -> tuple[Job, bool]:
        found: tuple[Job, bool] = Job.objects.get_or_enqueue(NewJob(task="tests.add", idempotency_key="k"))
        return found

    def test_a_key_is_taken_for_as_long_as_its_job_is_kept(self) -> None:
        job, is_new = self.enqueue()
        assert is_new
        Job.objects.settle([success(claim_one(Identity("me")))])
        assert era(job) == today()
        again, is_new = self.enqueue()
        assert (again.pk, is_new) == (job.pk, False)
        assert Job.objects.prune_these([job.pk]) == [job.pk]
        other, is_new = self.enqueue()
        assert is_new
        assert other.pk != job.pk

    def test_a_key_whose_job_was_deleted_by_hand_is_free_and_two_tasks_may_have_the_same(self) -> None:
        job, _ = self.enqueue()
        assert Job.objects.get_or_enqueue(NewJob(task="tests.other", idempotency_key="k"))[1]
        sql("DELETE FROM pulse_django_job RETURNING id")
        other, is_new = self.enqueue()
        assert is_new
        assert IdempotencyKey.objects.get(task="tests.add").job_id == other.pk != job.pk


class TestDays:
    @pytest.fixture(autouse=True)
    def _drop_what_was_made(self, days: None) -> Any:
        yield
        sql("SELECT pulse_django_drop_day(%s)", era_of(OLD))
        sql("TRUNCATE pulse_django_job_other")

    def make_old(self) -> None:
        assert sql("SELECT pulse_django_make_day(%s, 0)", era_of(OLD)) == [(True,)]

    def test_missing_days_are_made_once(self) -> None:
        ahead = prune.DAYS_AHEAD + 1
        [made] = Job.objects.make_days(ahead=ahead)
        try:
            assert era_of(made - timedelta(days=ahead)) == today()
            assert Job.objects.make_days(ahead=ahead) == []
        finally:
            sql("SELECT pulse_django_drop_day(%s)", era_of(made))

    @pytest.mark.one_server("the partitions that hold its rows are shards with names of their own")
    def test_jobs_of_a_day_without_a_partition_are_kept_elsewhere_and_moved_later(self) -> None:
        job = make_job(Status.COMPLETED, era=era_of(OLD))
        [(where,)] = sql("SELECT tableoid::regclass::text FROM pulse_django_job")
        assert where == "pulse_django_job_other"
        assert Job.objects.make_days() == [OLD]
        [(where,)] = sql("SELECT tableoid::regclass::text FROM pulse_django_job")
        assert where == f"pulse_django_job_{era_of(OLD)}"
        assert Job.objects.get().pk == job.pk

    def test_more_jobs_than_may_be_moved_stay_until_somebody_decides(self) -> None:
        for _ in range(3):
            make_job(Status.COMPLETED, era=era_of(OLD))
        assert Job.objects.make_days(most_moved=2) == []
        condition = conditions.named("day-missing")
        assert [subject.key for subject in conditions.ask(condition, "default").subjects] == [str(era_of(OLD))]
        assert [step.repaired for step in conditions.repair(condition, "default")] == [1]
        assert conditions.ask(condition, "default").is_clear
        assert Job.objects.filter(era=era_of(OLD)).count() == 3

    def test_a_day_is_dropped_with_all_that_its_jobs_have_elsewhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prune, "CLEANED_AT_ONCE", 2)
        self.make_old()
        for number in range(5):
            job = make_job(Status.COMPLETED, era=era_of(OLD), attempts=2, idempotency_key=f"k{number}")
            AttemptFactory(job=job, outcome="FAILED")
        kept = make_job(Status.COMPLETED, idempotency_key="kept", attempts=2)
        AttemptFactory(job=kept, outcome="FAILED")
        assert Job.objects.drop_days(older_than=timedelta(days=7)) == [OLD]
        assert list(Job.objects.values_list("pk", flat=True)) == [kept.pk]
        assert list(IdempotencyKey.objects.values_list("key", flat=True)) == ["kept"]
        assert [attempt.job_id for attempt in StoredAttempt.objects.all()] == [kept.pk]

    @each_of(OLD, None)
    def test_a_day_is_kept_until_its_last_job_is_old_enough(self, *, day: Any) -> None:
        """To the hour, also if it is yesterday."""
        day = day or datetime.now(UTC).date() - timedelta(days=1)
        sql("SELECT pulse_django_make_day(%s, 0)", era_of(day))
        since = datetime.now(UTC) - datetime.combine(day + timedelta(days=1), time(), tzinfo=UTC)
        try:
            assert Job.objects.drop_days(older_than=since + timedelta(seconds=60)) == []
            assert day in Job.objects.drop_days(older_than=since - timedelta(seconds=1)) or since < timedelta(seconds=2)
        finally:
            sql("SELECT pulse_django_drop_day(%s)", era_of(day))

    def test_what_is_left_of_a_large_day_is_cleaned_the_next_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(prune, "CLEANED_AT_ONCE", 2)
        self.make_old()
        for _ in range(5):
            AttemptFactory(job=make_job(Status.COMPLETED, era=era_of(OLD), attempts=2), outcome="FAILED")
        drop = partial(Job.objects.drop_days, older_than=timedelta(days=7), batches=2)
        assert (drop(), StoredAttempt.objects.count()) == ([], 1)
        assert (drop(), StoredAttempt.objects.count()) == ([OLD], 0)

    @pytest.mark.one_server("the partitions that hold its rows are shards with names of their own")
    def test_a_job_that_ends_while_its_day_is_made_ends_well(self, rival: Rival) -> None:
        """A settle waits for the lock, and is not refused its row."""
        day = datetime.now(UTC).date()
        sql("SELECT pulse_django_drop_day(%s)", today())
        job = make_job(Status.RUNNING)
        rival.begin()
        rival.run(sql, "SELECT pulse_django_make_day(%s, 0)", today())
        with closing(Rival()) as other:
            waits = other.start(Job.objects.settle, [succeeded(job)])
            other.wait_until_blocked(rival.pid)
            rival.commit()
            assert waits.result(PATIENCE).accepted == {lease_of(job): Status.COMPLETED}
        assert sql("SELECT tableoid::regclass::text FROM pulse_django_job") == [(f"pulse_django_job_{era_of(day)}",)]

    def test_an_era_that_is_no_day_keeps_no_other_from_being_made(self) -> None:
        make_job(Status.COMPLETED, era=20201399)
        make_job(Status.COMPLETED, era=era_of(OLD))
        assert Job.objects.make_days() == [OLD]
        assert Job.objects.drop_days(older_than=timedelta(days=7)) == [OLD]

    def test_only_partitions_are_dropped(self) -> None:
        sql("CREATE TABLE pulse_django_job_20200102 ()")
        try:
            assert sql("SELECT pulse_django_drop_day(20200102)") == [(False,)]
        finally:
            sql("DROP TABLE pulse_django_job_20200102")

    def test_a_table_that_is_in_use_is_not_waited_for(self, rival: Rival) -> None:
        self.make_old()
        rival.begin()
        rival.run(Job.objects.count)
        assert Job.objects.drop_days(older_than=timedelta(days=7)) == []
        rival.rollback()
        assert Job.objects.drop_days(older_than=timedelta(days=7)) == [OLD]

    @each_of(0, 1, -20200101, 2_000_000_000, 20201399, 20210229, around=on_empty_tables)
    def test_what_is_not_a_day_is_refused(self, *, era: Any) -> None:
        with pytest.raises(Exception, match=r"not a day|out of range"), transaction.atomic():
            sql("SELECT pulse_django_make_day(%s, 0)", era)
