from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django.exceptions import InvalidJob
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import Complete, Retry
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Succeeded, WorkerLost
from pulse_django.queue.words.states import CLAIMABLE, TERMINAL, Status
from pulse_django.queue.words.verb_results import CancelRequested, Report, Retried
from tests.database import on_empty_tables
from tests.factories import AttemptFactory, lease_of, make_job, now
from tests.faults import each_of
from tests.queue.steps import claim_one, sql, success
from tests.rival import PATIENCE, Rival, backend_pid

pytestmark = pytest.mark.usefixtures("pulse_db")


class TestRequestCancel:
    def test_what_waits_is_cancelled_what_runs_is_asked_what_ended_is_left(self) -> None:
        waiting, retrying = make_job(), make_job(Status.RETRYING)
        running, done = make_job(Status.RUNNING), make_job(Status.COMPLETED)
        answer = Job.objects.request_cancel([waiting.pk, retrying.pk, running.pk, done.pk, 10**12], reason="no longer")
        assert answer == CancelRequested(
            cancelled=frozenset({waiting.pk, retrying.pk}),
            asked=frozenset({running.pk}),
            refused=frozenset({done.pk, 10**12}),
        )
        waiting.refresh_from_db()
        assert (waiting.cancel_reason, waiting.status) == ("no longer", Status.CANCELLED)
        assert waiting.finished_at
        assert waiting.cancel_requested_at

    def test_the_heartbeat_tells_the_handler(self) -> None:
        running, other = make_job(Status.RUNNING), make_job(Status.RUNNING)
        Job.objects.request_cancel([running.pk])
        beat = Job.objects.heartbeat([lease_of(running), lease_of(other)])
        assert beat.cancelled == {lease_of(running)}
        assert beat.alive == {lease_of(running), lease_of(other)}

    def test_asking_twice_keeps_the_first_reason(self) -> None:
        running = make_job(Status.RUNNING)
        Job.objects.request_cancel([running.pk], reason="first")
        assert Job.objects.request_cancel([running.pk], reason="second").refused == {running.pk}
        running.refresh_from_db()
        assert running.cancel_reason == "first"

    def test_a_handler_that_finished_all_the_same_has_its_result_accepted(self) -> None:
        make_job()
        claim = claim_one(Identity("me"))
        Job.objects.request_cancel([claim.job_id])
        assert Job.objects.settle([success(claim)]).accepted == {claim.lease: Status.COMPLETED}

    def test_a_reason_that_cannot_be_stored_is_made_to_fit(self) -> None:
        job = make_job()
        Job.objects.request_cancel([job.pk], reason="\x00\ud800" + "x" * 1_000_000)
        job.refresh_from_db()
        assert len(job.cancel_reason) <= 2_000


class TestCancelThatMeetsAnotherVerb:
    """A request that waited for a job's row is about the job as it is then, and is never lost."""

    def cancel_while(self, rival: Rival, job: Job, changed: Callable[[], object]) -> CancelRequested:
        with transaction.atomic():
            changed()
            answer = rival.start(Job.objects.request_cancel, [job.pk], reason="enough")
            rival.wait_until_blocked(backend_pid())
        asked: CancelRequested = answer.result(PATIENCE)
        return asked

    def test_one_that_meets_a_claim_asks_the_run_to_stop(self, rival: Rival) -> None:
        job = make_job()
        claimed = """
            UPDATE pulse_django_job
            SET status = 'RUNNING', locked_by = 'w', lease_until = now() + interval '1 minute', attempts = 1,
                token = 1, started_at = now()
            WHERE id = %s
        """
        assert self.cancel_while(rival, job, lambda: sql(claimed, job.pk)).asked == {job.pk}
        job.refresh_from_db()
        assert (job.status, job.cancel_reason) == (Status.RUNNING, "enough")
        assert job.cancel_requested_at is not None

    def test_one_that_meets_the_end_of_a_failed_run_cancels_its_retry(self, rival: Rival) -> None:
        job = make_job(Status.RUNNING)
        failed = Report(lease_of(job), WorkerLost(), Retry(timedelta(), "lost"))
        assert self.cancel_while(rival, job, lambda: Job.objects.settle([failed])).cancelled == {job.pk}
        job.refresh_from_db()
        assert (job.status, job.cancel_reason) == (Status.CANCELLED, "enough")

    def test_one_that_meets_a_completion_is_refused(self, rival: Rival) -> None:
        job = make_job(Status.RUNNING)
        done = Report(lease_of(job), Succeeded(), Complete())
        assert self.cancel_while(rival, job, lambda: Job.objects.settle([done])).refused == {job.pk}
        job.refresh_from_db()
        assert job.status == Status.COMPLETED


class TestWhatWasSeen:
    """A verb that was told which attempt somebody saw leaves the job alone once there was another."""

    def change(self, verb: str, job: Job, attempt: int) -> bool:
        answer: Any = {
            "request_cancel": lambda: Job.objects.request_cancel([job.pk], attempt=attempt).refused,
            "reschedule": lambda: Job.objects.reschedule([job.pk], attempt=attempt).moved_on,
            "move": lambda: Job.objects.move([job.pk], queue="elsewhere", attempt=attempt).moved_on,
            "retry": lambda: Job.objects.retry([job.pk], attempt=attempt).moved_on,
        }[verb]()
        return not answer

    @each_of(
        ("request_cancel", Status.PENDING),
        ("request_cancel", Status.RUNNING),
        ("reschedule", Status.RETRYING),
        ("move", Status.RETRYING),
        ("retry", Status.DEAD_LETTERED),
        around=on_empty_tables,
    )
    def test_another_attempt_is_left_alone(self, *, verb: Any, status: Any) -> None:
        job = make_job(status, max_attempts=20)
        before = sql("SELECT * FROM pulse_django_job")
        assert not self.change(verb, job, job.attempts + 1)
        assert not self.change(verb, job, job.attempts - 1)
        assert sql("SELECT * FROM pulse_django_job") == before
        assert self.change(verb, job, job.attempts)

    def test_an_attempt_that_begins_while_the_verb_waits_is_left_alone(self, rival: Rival) -> None:
        job = make_job(Status.RETRYING)
        with transaction.atomic():
            sql("UPDATE pulse_django_job SET attempts = attempts + 1 WHERE id = %s", job.pk)
            answer = rival.start(Job.objects.request_cancel, [job.pk], attempt=job.attempts)
            rival.wait_until_blocked(backend_pid())
        assert answer.result(PATIENCE).refused == {job.pk}


class TestRetry:
    def test_those_that_are_revived_at_once_come_due_one_after_another(self) -> None:
        dead = [make_job(Status.DEAD_LETTERED) for _ in range(4)]
        alive = make_job(Status.COMPLETED)
        ids = [dead[0].pk, alive.pk, *(job.pk for job in dead[1:])]
        assert Job.objects.retry(ids, delay=timedelta(hours=1), gap=timedelta(minutes=10)).moved_on == {alive.pk}
        due = list(Job.objects.filter(status=Status.PENDING).order_by("pk").values_list("next_run_at", flat=True))
        gaps = [round((later - earlier).total_seconds()) for earlier, later in itertools.pairwise(due)]
        assert gaps == [600, 600, 600]

    def test_only_what_is_dead_is_revived(self) -> None:
        dead = make_job(Status.DEAD_LETTERED)
        others = [make_job(status) for status in Status if status != Status.DEAD_LETTERED]
        answer = Job.objects.retry([dead.pk, *(job.pk for job in others)])
        assert answer == Retried(revived=frozenset({dead.pk}), moved_on=frozenset(job.pk for job in others))

    def test_the_history_stays(self) -> None:
        dead = make_job(Status.DEAD_LETTERED, losses=4)
        AttemptFactory(job=dead, number=10)
        Job.objects.retry([dead.pk])
        dead.refresh_from_db()
        assert (dead.attempts, dead.losses, dead.last_error) == (10, 4, "ValueError: no")
        assert dead.ledger.count() == 1

    @each_of(
        (10, 0, 1, 1),  # spent: one more run is granted
        (10, 0, 3, 3),
        (12, 2, 1, 1),  # spent with refunds
        (1, 0, 1, 9),  # never retried: what is left of its budget is enough
        (1, 0, 10, 10),
        (5, 5, 1, 10),  # dead without one attempt that counted
        (0, 0, 1, 10),
        (10, 0, 99, 10),  # no more than the whole budget
        around=on_empty_tables,
    )
    def test_it_grants_the_runs_that_are_missing_and_nothing_silently(
        self, *, attempts: Any, refunds: Any, runs: Any, left: Any
    ) -> None:
        dead = make_job(Status.DEAD_LETTERED, attempts=attempts, refunds=refunds, max_attempts=10)
        Job.objects.retry([dead.pk], runs=runs)
        dead.refresh_from_db()
        assert dead.max_attempts - (dead.attempts - dead.refunds) == left
        assert (dead.max_attempts, dead.attempts) == (10, attempts)
        assert claim_one(Identity("me")).attempt == attempts + 1

    def test_it_may_be_delayed(self) -> None:
        dead = make_job(Status.DEAD_LETTERED)
        Job.objects.retry([dead.pk], delay=timedelta(hours=1))
        assert Job.objects.claim(Identity("me")) == []

    def test_an_old_request_to_cancel_does_not_outlive_it(self) -> None:
        dead = make_job(Status.DEAD_LETTERED, cancel_requested_at=now(), cancel_reason="then")
        Job.objects.retry([dead.pk])
        dead.refresh_from_db()
        assert (dead.cancel_requested_at, dead.cancel_reason) == (None, "")

    def test_a_retry_of_no_runs_is_a_mistake(self) -> None:
        with pytest.raises(ValueError, match="runs: 0"):
            Job.objects.retry([1], runs=0)


class TestPrune:
    @each_of(*[status for status in Status if status in TERMINAL], around=on_empty_tables)
    def test_old_jobs_go_with_their_attempts_and_young_ones_stay(self, *, status: Any) -> None:
        old = make_job(status, finished_at=now(timedelta(days=-8)))
        young = make_job(status, finished_at=now(timedelta(days=-6)))
        for job in (old, young):
            AttemptFactory(job=job)
        assert Job.objects.prune(status, older_than=timedelta(days=7)) == 1
        assert list(Job.objects.values_list("pk", flat=True)) == [young.pk]
        assert list(Attempt.objects.values_list("job_id", flat=True)) == [young.pk]

    def test_other_statuses_are_left_alone(self) -> None:
        make_job(Status.DEAD_LETTERED, finished_at=now(timedelta(days=-99)))
        assert Job.objects.prune(Status.COMPLETED, older_than=timedelta()) == 0

    @each_of(*[status for status in Status if status not in TERMINAL], around=on_empty_tables)
    def test_a_live_job_is_never_deleted(self, *, status: Any) -> None:
        make_job(status)
        with pytest.raises(ValueError, match="does not delete live jobs"):
            Job.objects.prune(status, older_than=timedelta())
        assert Job.objects.count() == 1

    def test_it_is_bounded_and_takes_the_oldest_first(self) -> None:
        jobs = [make_job(Status.COMPLETED, finished_at=now(timedelta(days=-n))) for n in (3, 5, 4)]
        assert Job.objects.prune(Status.COMPLETED, older_than=timedelta(), limit=2) == 2
        assert Job.objects.get() == jobs[0]

    def test_a_job_that_somebody_is_looking_at_is_skipped(self, rival: Rival) -> None:
        job = make_job(Status.COMPLETED, finished_at=now(timedelta(days=-9)))
        rival.begin()
        rival.run(sql, "SELECT id FROM pulse_django_job WHERE id = %s FOR KEY SHARE", job.pk)
        assert Job.objects.prune(Status.COMPLETED, older_than=timedelta()) == 0
        rival.rollback()
        assert Job.objects.prune(Status.COMPLETED, older_than=timedelta()) == 1

    def test_a_dead_letter_revived_halfway_is_not_deleted(self, rival: Rival) -> None:
        job = make_job(Status.DEAD_LETTERED, finished_at=now(timedelta(days=-9)))
        rival.begin()
        rival.run(Job.objects.retry, [job.pk])
        assert Job.objects.prune(Status.DEAD_LETTERED, older_than=timedelta()) == 0
        rival.commit()
        assert Job.objects.prune(Status.DEAD_LETTERED, older_than=timedelta()) == 0
        assert Job.objects.get().status == Status.PENDING

    def test_of_these_only_what_has_ended_by_then_is_deleted(self) -> None:
        ended, live = make_job(Status.DEAD_LETTERED, finished_at=now(timedelta(seconds=-9))), make_job(Status.RUNNING)
        later, other = make_job(Status.COMPLETED), make_job(Status.COMPLETED)
        for job in (ended, live, later, other):
            AttemptFactory(job=job)
        these = [ended.pk, live.pk, later.pk, 10**15]
        assert Job.objects.prune_these(these, ended_by=ended.finished_at) == [ended.pk]
        assert Job.objects.prune_these(these) == [later.pk]
        assert set(Job.objects.values_list("pk", flat=True)) == {live.pk, other.pk}
        assert set(Attempt.objects.values_list("job_id", flat=True)) == {live.pk, other.pk}


@each_of(*CLAIMABLE, around=on_empty_tables)
def test_a_job_that_waits_for_tomorrow_runs_now(*, status: Any) -> None:
    job = make_job(status, next_run_at=now(timedelta(days=1)))
    assert Job.objects.claim(Identity("me")) == []
    assert Job.objects.reschedule([job.pk, 10**15]).changed == {job.pk}
    assert [claim.job_id for claim in Job.objects.claim(Identity("me"))] == [job.pk]


def test_a_job_is_postponed_by_the_servers_clock() -> None:
    job = make_job()
    Job.objects.reschedule([job.pk], delay=timedelta(hours=2))
    job.refresh_from_db()
    assert job.status == Status.PENDING
    assert timedelta(minutes=119) < job.next_run_at - job.created_at < timedelta(minutes=121)


def test_a_job_moves_to_another_queue_and_keeps_its_priority() -> None:
    job = make_job(queue="slow", priority=7)
    Job.objects.move([job.pk], queue="quick")
    job.refresh_from_db()
    assert (job.queue, job.priority) == ("quick", 7)
    Job.objects.move([job.pk], priority=-3)
    job.refresh_from_db()
    assert (job.queue, job.priority) == ("quick", -3)


@each_of(*[status for status in Status if status not in CLAIMABLE], around=on_empty_tables)
def test_what_does_not_wait_is_left_alone_and_told(*, status: Any) -> None:
    job = make_job(status)
    before = Job.objects.values().get()
    for answer in (Job.objects.reschedule([job.pk]), Job.objects.move([job.pk], queue="other")):
        assert (answer.changed, answer.moved_on) == (frozenset(), {job.pk})
    assert Job.objects.values().get() == before


@each_of(("move", {"queue": "other"}), ("reschedule", {"delay": timedelta(hours=1)}), around=on_empty_tables)
def test_a_job_that_moves_on_while_the_operator_waits_is_left_alone(rival: Rival, *, verb: Any, change: Any) -> None:
    job = make_job()
    with transaction.atomic():
        Job.objects.request_cancel([job.pk])
        changing = rival.start(getattr(Job.objects, verb), [job.pk], **change)
        rival.wait_until_blocked(backend_pid())
    assert changing.result(20).moved_on == {job.pk}
    after = Job.objects.get()
    assert (after.status, after.queue, after.next_run_at) == (Status.CANCELLED, "default", job.next_run_at)


@each_of(
    {},
    {"queue": ""},
    {"queue": "x" * 101},
    {"queue": "a\nb"},
    {"priority": 101},
    {"priority": "1"},
    around=on_empty_tables,
)
def test_nonsense_is_refused(*, change: Any) -> None:
    job = make_job()
    with pytest.raises((ValueError, InvalidJob)):
        Job.objects.move([job.pk], **change)
    with pytest.raises(ValueError, match="is not between 0 and"):
        Job.objects.reschedule([job.pk], delay=timedelta(seconds=-1))
    assert Job.objects.get().queue == "default"
