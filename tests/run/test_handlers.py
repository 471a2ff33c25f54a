"""What handlers do, and what becomes of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django import api, cancel, enqueue_many, fence, fenced_update
from pulse_django.exceptions import InvalidJob, JobCancelled, LeaseLost, PayloadError, StaleToken
from pulse_django.models import Attempt, Fence, Job
from pulse_django.queue.enqueue import ENQUEUE_CHUNK
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.run.context import Context
from pulse_django.run.execute import perform
from pulse_django.run.registry import Registry
from pulse_django.run.results import result_of
from pulse_django.run.run import Run
from pulse_django.signals import lease_lost
from pulse_django.testing import Zombie, drain, expire_lease, jump_to_next_run, run_job
from pulse_django.testing.drain import beat
from testproject.shop import tasks
from testproject.shop.models import Invoice, Order
from tests.database import empty_tables
from tests.factories import make_job, now
from tests.faults import each_of
from tests.queue.steps import sql, success
from tests.rival import Rival
from tests.run import more  # noqa: F401 - registers its tasks

pytestmark = pytest.mark.usefixtures("pulse_db")


def context_of(run: Run) -> Context:
    job = Job.objects.get(pk=run.claim.job_id)
    return Context(task_result=result_of(job, tasks.add), run=run)


def claimed_run(job: Any) -> Run:
    [claim] = Job.objects.claim_these(Identity("me"), [int(job.id)])
    return Run(claim, beat=beat)


class TestOutcomes:
    @each_of("RecursionError", "MemoryError", "SystemExit", "BufferError")
    def test_trouble_while_reporting_still_ends_the_run(self, *, trouble: Any) -> None:
        empty_tables()
        job = make_job(task="tests.run.more.cannot_be_told", args=[trouble])
        assert run_job(job, failures="keep").outcome == OutcomeName.FAILED
        assert trouble in Attempt.objects.get().message

    def test_arguments_that_cannot_be_read_are_a_failure_of_their_own_job(self) -> None:
        job = make_job(task="shop.echo")
        sql("UPDATE pulse_django_job SET args = '[1e5000]' WHERE id = %s", job.pk)
        other = tasks.add.enqueue(1, 2)
        ran = [run_job(one, failures="keep") for one in (job, other)]  # in a slow drain the first may be due again
        assert [one.status for one in ran] == [Status.RETRYING, Status.COMPLETED]
        assert "4300" in Job.objects.values_list("last_error", flat=True).get(pk=job.pk)
        assert api.get(other.id).status == Status.COMPLETED

    def test_a_job_that_is_deleted_before_it_starts_is_nobodys_trouble(self) -> None:
        run = claimed_run(job := make_job(task="shop.echo", args=[1]))
        Job.objects.filter(pk=job.pk).delete()
        performed = perform(run)
        assert performed.report is not None
        assert Job.objects.settle([performed.report]).lost == {run.claim.lease}

    def test_a_dead_letter_knows_why_when_after_which_attempt_and_who_had_it_last(self) -> None:
        result = tasks.fail.enqueue("no luck")
        for _ in range(3):
            jump_to_next_run(result)
            run_job(result, failures="keep")
        job = Job.objects.get()
        last = job.ledger.latest("number")
        assert (job.status, job.last_error, job.attempts) == (
            Status.DEAD_LETTERED,
            "RuntimeError: no luck [tasks.py:fail]",
            3,
        )
        assert job.finished_at
        assert (last.number, last.message) == (3, "no luck")
        assert last.worker.startswith("pulse-test:")

    def test_a_payload_of_an_older_signature_fails_and_can_be_retried_after_the_mend(self) -> None:
        older = make_job(task="testproject.shop.tasks.add", kwargs={"a": 1, "b": 2, "removed": True}, max_attempts=1)
        newer = make_job(task="testproject.shop.tasks.fail", args=["kind has a default by now"])
        assert run_job(older, failures="keep").status == Status.DEAD_LETTERED
        older.refresh_from_db()
        assert "unexpected keyword argument 'removed'" in older.last_error
        run_job(newer, failures="keep")
        newer.refresh_from_db()
        assert (
            newer.last_error == "RuntimeError: kind has a default by now [tasks.py:fail]"
        )  # its own; the signature fits
        Job.objects.filter(pk=older.pk).update(kwargs={"a": 1, "b": 2})
        api.retry(older.pk)
        assert run_job(older).status == Status.COMPLETED

    def test_old_and_new_workers_share_a_queue_during_a_deploy(self) -> None:
        job = make_job(task="shop.echo", args=["new"], max_attempts=1)
        run = claimed_run(job)
        old_release = Registry()
        old_release._discovered = True
        performed = perform(run, old_release)
        assert performed.report is not None
        Job.objects.settle([performed.report])
        jump_to_next_run(job)
        assert run_job(job).status == Status.COMPLETED
        job.refresh_from_db()
        assert (job.attempts, job.refunds) == (2, 1)

    def test_async_handlers_run_too(self) -> None:
        result = tasks.add_async.enqueue(2, 3)
        drain()
        result.refresh()
        assert result.return_value == 5

    def test_a_result_that_cannot_be_stored_is_a_dead_letter_and_its_effects_stand(self) -> None:
        job = make_job(task="tests.run.more.returns_a_set")
        assert run_job(job, failures="keep").status == Status.DEAD_LETTERED
        job.refresh_from_db()
        assert "result: set is not JSON serializable (Unsupported type). Pass list(value)" in job.last_error

    def test_an_exception_of_a_handler_that_swallows_exceptions_still_cancels(self) -> None:
        job = make_job(task="tests.run.more.swallows_everything")
        run = claimed_run(job)
        cancel(job.pk, reason="enough")
        performed = perform(run)
        assert performed.report is not None
        assert performed.report.outcome.name == OutcomeName.CANCELLED


class TestContext:
    def test_it_knows_its_run(self) -> None:
        job = make_job(max_attempts=2)
        run = claimed_run(job)
        context = context_of(run)
        assert (context.job_id, context.attempt, context.token) == (job.pk, 1, run.claim.token)
        assert context.headers == {
            "Pulse-Fencing-Token": str(run.claim.token),
            "Idempotency-Key": f"pulse-{job.pk}",
        }
        assert context.is_last_attempt is False
        assert timedelta(seconds=29) < context.lease_remaining() <= timedelta(seconds=30)
        context.check()

    @pytest.mark.parametrize(
        ("options", "is_last"),
        [
            ({"max_attempts": 1}, True),
            ({"give_up_after": timedelta(minutes=50)}, True),
            ({"give_up_after": timedelta(hours=1, seconds=1)}, True),
            ({"give_up_after": timedelta(hours=2)}, False),
        ],
    )
    def test_the_last_attempt_knows_that_it_is(self, options: dict[str, Any], is_last: bool) -> None:
        """The third attempt is followed by the fourth after eight seconds at the earliest."""
        if "give_up_after" in options:
            options |= {"status": Status.RETRYING, "attempts": 2, "created_at": now(-timedelta(hours=1))}
        assert context_of(claimed_run(make_job(**options))).is_last_attempt is is_last

    def test_it_has_the_meta_of_its_job(self) -> None:
        assert context_of(claimed_run(make_job(meta={"by": "shop", "n": [1]}))).meta == {"by": "shop", "n": [1]}
        assert context_of(claimed_run(make_job())).meta == {}

    def test_check_raises_when_the_job_was_asked_to_stop_or_the_lease_was_lost(self) -> None:
        asked, lost = make_job(), make_job()
        contexts = [context_of(claimed_run(job)) for job in (asked, lost)]
        cancel(asked.pk)
        expire_lease(lost)
        Job.objects.reap()
        for context, error in zip(contexts, (JobCancelled, LeaseLost), strict=True):
            with pytest.raises(error):
                context.check()
        assert contexts[0].cancelled

    def test_check_raises_when_no_beat_came_through_for_one_ttl_whatever_the_database_says(self) -> None:
        clock = [100.0]
        [claim] = Job.objects.claim_these(Identity("me"), [make_job().pk])
        run = Run(claim, granted_at=100.0, clock=lambda: clock[0])
        clock[0] = 129.9
        run.check()
        run.extended(sent_at=110.0)
        run.extended(sent_at=105.0)  # an answer that came late proves nothing newer
        clock[0] = 139.9
        run.check()
        clock[0] = 140.0
        with pytest.raises(LeaseLost):
            run.check()

    def test_progress_travels_with_the_next_beat_and_only_the_latest_or_at_once_if_it_is_flushed(self) -> None:
        job = make_job()
        context = context_of(claimed_run(job))
        context.progress(1, 10)
        context.progress(2, 10, page="b")
        assert api.progress(job.pk) is None
        context.check()  # beats, here
        assert api.progress(job.pk) == {"done": 2, "total": 10, "page": "b"}
        context.progress(3, flush=True)
        assert api.progress(job.pk) == {"done": 3}

    def test_progress_that_no_heartbeat_carried_goes_with_the_report(self) -> None:
        result = Job.objects.enqueue(NewJob(task="tests.run.more.gets_halfway"))
        assert run_job(result, failures="keep").status == Status.RETRYING
        assert api.progress(result.pk) == {"done": 1, "total": 2}
        jump_to_next_run(result)
        assert run_job(result).status == Status.COMPLETED  # it found the checkpoint

    def test_progress_goes_with_a_transactional_completion_too(self) -> None:
        job = make_job()
        context = context_of(claimed_run(job))
        context.progress(2, 2)
        with context.atomic():
            pass
        assert api.progress(job.pk) == {"done": 2, "total": 2}

    def test_a_completion_that_is_there_already_is_rolled_back_with_its_effects(self) -> None:
        """The answer to its commit was lost, and the handler repeats the block."""
        run = claimed_run(make_job())
        context = context_of(run)
        Job.objects.settle([success(run.claim)])
        with pytest.raises(LeaseLost), context.atomic():
            Order.objects.create(number=1)
        assert not Order.objects.exists()

    def test_progress_of_a_lost_lease_is_refused(self) -> None:
        job = make_job()
        zombie = Zombie(job)
        zombie.freeze()
        with pytest.raises(LeaseLost):
            context_of(zombie.run).progress(1, flush=True)
        assert api.progress(job.pk) is None

    def test_progress_that_cannot_be_stored_is_refused_where_it_is_said(self) -> None:
        context = context_of(claimed_run(make_job()))
        with pytest.raises(InvalidJob, match=r"progress.*NUL"):
            context.progress(1, note="\x00")

    def test_a_retry_resumes_from_the_last_checkpoint(self) -> None:
        result = tasks.send_letters.enqueue(5)
        zombie = Zombie(result)
        context_of(zombie.run).progress(3, 5, flush=True)
        zombie.freeze()
        assert run_job(result).status == Status.COMPLETED
        result.refresh()
        assert result.return_value == [3, 4]


class TestExactlyOnceInTheSameDatabase:
    def test_the_effects_and_the_completion_are_one(self) -> None:
        for task, value in ((tasks.make_invoice, 7), (tasks.make_invoice_by_hand, {"order": 7})):
            Invoice.objects.all().delete()
            result = task.enqueue(7)
            assert run_job(result).status == Status.COMPLETED
            result.refresh()
            assert result.return_value == value
            assert Invoice.objects.count() == 1

    @pytest.mark.parametrize("task", [tasks.make_invoice, tasks.make_invoice_by_hand], ids=lambda task: task.name)
    def test_a_zombie_whose_job_was_given_away_leaves_nothing(
        self, task: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        result = task.enqueue(7)
        zombie = Zombie(result)
        zombie.freeze()
        run_job(result)
        heard: list[tuple[int, str]] = []

        def lost(claim: Any, outcome: Any, **facts: Any) -> None:
            heard.append((claim.job_id, outcome.name))

        lease_lost.connect(lost)
        performed = perform(zombie.run)  # the frozen worker wakes up and runs its handler
        lease_lost.disconnect(lost)
        assert performed.report is None
        assert zombie.run.lost
        assert Invoice.objects.count() == 1
        assert heard == [(zombie.run.claim.job_id, "SUCCEEDED")]
        assert "lease lost; its completion was refused and rolled back" in caplog.text

    def test_a_zombie_that_wakes_up_before_anybody_else_leaves_nothing_either(self) -> None:
        result = tasks.make_invoice.enqueue(7)
        zombie = Zombie(result)
        zombie.freeze()
        perform(zombie.run)
        assert Invoice.objects.count() == 0
        run_job(result)
        assert Invoice.objects.count() == 1

    def test_a_careless_handler_leaves_two_so_that_these_tests_can_fail(self) -> None:
        result = tasks.make_invoice_carelessly.enqueue(7)
        zombie = Zombie(result)
        zombie.freeze()
        run_job(result)
        perform(zombie.run)
        assert Invoice.objects.count() == 2

    def test_heartbeats_go_on_while_the_block_is_open(self, rival: Rival) -> None:
        run = claimed_run(make_job())
        context = context_of(run)
        with context.atomic():
            Invoice.objects.create(order_number=1)
            assert rival.run(Job.objects.heartbeat, [run.claim.lease]).alive

    def test_it_refuses_to_be_part_of_a_larger_transaction(self) -> None:
        context = context_of(claimed_run(make_job()))
        with (
            transaction.atomic(),
            pytest.raises(RuntimeError, match=r"context.atomic\(\) must commit on its own"),
            context.atomic(),
        ):
            pass

    def test_an_unstorable_result_rolls_everything_back(self) -> None:
        context = context_of(claimed_run(make_job()))
        with pytest.raises(InvalidJob), context.atomic() as completion:
            Invoice.objects.create(order_number=1)
            completion.result = object()
        assert not Invoice.objects.exists()
        assert Job.objects.get().status == Status.RUNNING

    def test_an_exception_after_the_block_does_not_undo_the_completion(self) -> None:
        job = make_job(task="tests.run.more.completes_and_raises")
        assert run_job(job, failures="keep").status == Status.COMPLETED
        attempt = Attempt.objects.get()
        assert (attempt.outcome, attempt.late_outcome) == ("SUCCEEDED", "FAILED")


class TestFencing:
    def test_an_older_token_changes_nothing_and_raises(self) -> None:
        Order.objects.create(number=1)
        older, newer = Zombie(make_job()), Zombie(make_job())
        orders = Order.objects.filter(number=1)
        assert fenced_update(orders, newer.claim, report="newer") == 1
        with pytest.raises(StaleToken, match="already has a newer token"):
            fenced_update(orders, older.claim, report="older")
        order = Order.objects.get()
        assert (order.report, order.fencing_token) == ("newer", newer.claim.token)

    def test_the_same_run_may_write_again(self) -> None:
        Order.objects.create(number=1)
        run = Zombie(make_job())
        for report in ("first", "second"):
            fenced_update(Order.objects.filter(number=1), run.claim, report=report)
        assert Order.objects.get().report == "second"

    def test_one_newer_row_stops_the_whole_update(self) -> None:
        for number in (1, 2):
            Order.objects.create(number=number)
        older, newer = Zombie(make_job()), Zombie(make_job())
        fenced_update(Order.objects.filter(number=2), newer.claim, report="newer")
        with pytest.raises(StaleToken):
            fenced_update(Order.objects.all(), older.claim, report="older")
        assert sorted(Order.objects.values_list("report", flat=True)) == ["", "newer"]

    def test_a_write_that_waited_for_a_newer_one_is_stale(self, rival: Rival) -> None:
        Order.objects.create(number=1)
        older, newer = Zombie(make_job()), Zombie(make_job())
        orders = Order.objects.filter(number=1)
        rival.begin()
        rival.run(fenced_update, orders, newer.claim, report="newer")
        with rival.blocks(fenced_update, orders, older.claim, report="older") as waiting:
            rival.commit()
            with pytest.raises(StaleToken):
                waiting.result(20)
        assert Order.objects.get().report == "newer"

    def test_a_task_uses_its_contexts_token(self) -> None:
        Order.objects.create(number=1)
        result = tasks.write_report.enqueue(1, "all well")
        zombie = Zombie(result)
        zombie.freeze()
        run_job(result)
        with pytest.raises(StaleToken):
            fenced_update(Order.objects.filter(number=1), zombie.claim, report="late")
        assert Order.objects.get().report == "all well"

    def test_a_resource_without_a_column_has_a_high_water_mark(self) -> None:
        older, newer = Zombie(make_job()), Zombie(make_job())
        for one in (older, older, newer):
            with transaction.atomic():
                fence("bucket/report.pdf", one.claim)
        with pytest.raises(StaleToken, match=r"bucket/report\.pdf"), transaction.atomic():
            fence("bucket/report.pdf", older.claim)
        with transaction.atomic():
            fence("another", older.claim)

    def test_a_fence_outside_of_a_transaction_guards_nothing_and_says_so(self) -> None:
        zombie = Zombie(make_job())
        with pytest.raises(transaction.TransactionManagementError, match=r"inside transaction\.atomic\(\)"):
            fence("unguarded", zombie.claim)
        assert not Fence.objects.filter(resource="unguarded").exists()

    def test_nor_does_the_transaction_that_a_test_case_wraps_around_it(self) -> None:
        """Or a test would pass where production raises."""
        block = transaction.atomic()
        block._from_testcase = True  # type: ignore[attr-defined]
        zombie = Zombie(make_job())
        with block:
            with pytest.raises(transaction.TransactionManagementError):
                fence("bucket/report.pdf", zombie.claim)
            with transaction.atomic():
                fence("bucket/report.pdf", zombie.claim)

    def test_a_fence_holds_until_the_guarded_transaction_ends(self, rival: Rival) -> None:
        older, newer = Zombie(make_job()), Zombie(make_job())
        rival.begin()
        rival.run(fence, "resource", newer.claim)
        with rival.blocks(transaction.atomic(fence), "resource", older.claim) as waiting:
            rival.commit()
            with pytest.raises(StaleToken):
                waiting.result(20)


class TestFamilies:
    def test_what_a_handler_enqueues_are_its_children(self) -> None:
        result = tasks.start_children.enqueue(2)
        run_job(result)
        parent = Job.objects.get(pk=result.id)
        assert parent.children.count() == 2
        assert Job.objects.exclude(pk=parent.pk).first().parent == parent  # type: ignore[union-attr]
        assert tasks.add.enqueue(1, 1).id  # outside of a handler: nobody's child
        assert Job.objects.filter(parent=None).count() == 2

    def test_cancelling_may_take_the_descendants_along(self) -> None:
        parent = make_job(Status.RUNNING)
        child = make_job(parent=parent)
        grandchild = make_job(Status.RETRYING, parent=child)
        others = [make_job(), make_job(parent=(alone := make_job(Status.RUNNING)))]
        cancel(alone.pk)
        answer = cancel(parent.pk, reason="all of it", children=True)
        assert answer.asked == {parent.pk}
        assert answer.cancelled == {child.pk, grandchild.pk}
        for other in others:
            other.refresh_from_db()
            assert other.status == Status.PENDING


class TestIdempotencyKeys:
    def test_a_second_enqueue_returns_the_first_job(self) -> None:
        keyed = tasks.add.using(idempotency_key="order-7")
        first, second = keyed.enqueue(1, 2), keyed.enqueue(3, 4)
        assert first.id == second.id
        assert second.args == [1, 2]
        assert Job.objects.count() == 1

    def test_also_after_it_is_done_and_until_it_is_pruned_and_another_task_may_have_the_same_key(self) -> None:
        keyed = tasks.add.using(idempotency_key="order-7")
        first = keyed.enqueue(1, 2)
        drain()
        assert keyed.enqueue(1, 2).id == first.id
        assert tasks.echo.using(idempotency_key="order-7").enqueue(1).id != first.id
        Job.objects.prune(Status.COMPLETED, older_than=timedelta())
        assert keyed.enqueue(1, 2).id != first.id

    def test_the_callers_transaction_never_aborts(self) -> None:
        keyed = tasks.add.using(idempotency_key="k")
        keyed.enqueue(1, 2)
        with transaction.atomic():
            Order.objects.create(number=1)
            keyed.enqueue(1, 2)
            Order.objects.create(number=2)
        assert Order.objects.count() == 2

    def test_a_rival_that_rolls_back_does_not_swallow_the_job(self, rival: Rival) -> None:
        keyed = tasks.add.using(idempotency_key="k")
        rival.begin()
        rolled_back = rival.run(keyed.enqueue, 1, 2)
        with rival.blocks(keyed.enqueue, 3, 4) as waiting:
            rival.rollback()
            assert waiting.result(20).id != rolled_back.id
        assert Job.objects.get().args == [3, 4]

    def test_a_rival_that_commits_is_the_first(self, rival: Rival) -> None:
        keyed = tasks.add.using(idempotency_key="k")
        rival.begin()
        first = rival.run(keyed.enqueue, 1, 2)
        with rival.blocks(keyed.enqueue, 3, 4) as waiting:
            rival.commit()
            assert waiting.result(20).id == first.id

    def test_a_running_job_is_not_touched(self) -> None:
        keyed = tasks.add.using(idempotency_key="k")
        zombie = Zombie(keyed.enqueue(1, 2))
        before = Job.objects.values().get()
        keyed.enqueue(1, 2)
        assert Job.objects.values().get() == before
        assert zombie.report().accepted

    def test_an_operators_retry_of_the_keyed_job_collides_with_nothing(self) -> None:
        keyed = tasks.fail.using(idempotency_key="k")
        result = keyed.enqueue("no", "ValueError")
        run_job(result, failures="keep")
        assert api.retry(result.id).revived == {int(result.id)}
        assert keyed.enqueue("no", "ValueError").id == result.id


def test_a_retry_whose_answer_was_lost_can_be_made_again() -> None:
    result = tasks.fail.using(max_attempts=1).enqueue("no", "ValueError")
    run_job(result, failures="keep")
    assert api.retry(result.id, attempt=1).revived == {int(result.id)}
    run_job(result, failures="keep")
    assert Job.objects.get().status == Status.DEAD_LETTERED
    assert api.retry(result.id, attempt=1).moved_on == {int(result.id)}, (
        "it died again meanwhile, and nobody has looked"
    )


class TestEnqueueMany:
    def test_positional_and_keyword_arguments(self) -> None:
        seen: list[int] = []
        ids = enqueue_many(tasks.add, [(1, 2), [3, 4], {"a": 5, "b": 6}], progress=seen.append)
        assert [(job.args, job.kwargs) for job in Job.objects.filter(pk__in=ids).order_by("id")] == [
            ([1, 2], {}),
            ([3, 4], {}),
            ([], {"a": 5, "b": 6}),
        ]
        assert seen == [3]

    def test_progress_is_told_chunk_by_chunk_of_any_iterable(self) -> None:
        seen: list[int] = []
        enqueue_many(tasks.add, ((n, n) for n in range(2 * ENQUEUE_CHUNK + 500)), progress=seen.append)
        assert seen == [ENQUEUE_CHUNK, 2 * ENQUEUE_CHUNK, 2 * ENQUEUE_CHUNK + 500]

    def test_what_using_says_holds_for_each(self) -> None:
        ids = enqueue_many(tasks.add.using(priority=7, queue_name="mail", max_attempts=2), [(1, 2), (3, 4)])
        assert {(job.priority, job.queue, job.max_attempts) for job in Job.objects.filter(pk__in=ids)} == {
            (7, "mail", 2)
        }

    def test_arguments_are_made_to_fit_as_those_of_a_single_job_are(self) -> None:
        [many] = enqueue_many(tasks.echo, [((1, (2,)),)])
        one = tasks.echo.enqueue((1, (2,)))
        assert Job.objects.get(pk=many).args == Job.objects.get(pk=one.id).args == [[1, [2]]]

    @pytest.mark.parametrize("bad", [(b"bytes",), {"value": {1: 2}}], ids=repr)
    def test_arguments_that_would_change_are_refused_as_those_of_a_single_job_are(self, bad: Any) -> None:
        with pytest.raises(PayloadError, match="value: "):
            enqueue_many(tasks.echo, [bad])
        with pytest.raises(PayloadError, match="value: "):
            tasks.echo.enqueue(*bad) if isinstance(bad, tuple) else tasks.echo.enqueue(**bad)

    def test_what_cannot_be_enqueued_is_refused_and_with_it_all(self) -> None:
        for task, arguments, said in (
            (tasks.echo, [("fine",), ("\x00",)], "NUL"),
            (tasks.echo, ["abc"], "write"),
            (tasks.echo.using(idempotency_key="k"), [("a",), ("b",)], "one key cannot be used for many"),
        ):
            with pytest.raises(InvalidJob, match=said):
                enqueue_many(task, arguments)
        assert not Job.objects.exists()


class TestApi:
    def test_jobs_are_found_by_status_queue_and_task(self) -> None:
        tasks.later.enqueue("x")
        done = tasks.add.enqueue(1, 2)
        run_job(done)
        assert api.jobs(status=Status.COMPLETED).get() == api.get(done.id)
        assert api.jobs(queue="mail").get().task == "testproject.shop.tasks.later"
        assert api.jobs(task=tasks.add).count() == api.jobs(task="testproject.shop.tasks.add").count() == 1
        assert api.jobs().count() == 2

    def test_taking_a_job_back_gives_it_to_the_next_worker_at_once(self) -> None:
        result = tasks.add.enqueue(1, 2)
        zombie = Zombie(result)
        assert api.release(result.id, reason="host is being replaced").accepted
        job = api.get(result.id)
        assert (job.status, job.last_error, job.attempts, job.refunds) == (
            Status.RETRYING,
            "host is being replaced",
            1,
            0,
        )
        assert run_job(result).status == Status.COMPLETED
        assert zombie.report().lost

    def test_taking_back_what_does_not_run_does_nothing_and_the_last_attempt_is_a_dead_letter(self) -> None:
        result = tasks.add.using(max_attempts=1).enqueue(1, 2)
        assert not api.release(result.id).accepted
        Zombie(result)
        api.release(result.id)
        assert api.get(result.id).status == Status.DEAD_LETTERED
