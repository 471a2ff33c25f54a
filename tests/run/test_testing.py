"""``pulse_django.testing``: a product of its own, tested as its users use it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextvars import Context
from dataclasses import FrozenInstanceError, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.conf import settings
from django.test import TestCase, TransactionTestCase, override_settings

from pulse_django import task
from pulse_django.models import Attempt, Job, StoredAttempt
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import BaseTaskBackend
from pulse_django.testing import (
    DrainLimit,
    Zombie,
    assert_enqueued,
    assert_idempotent,
    drain,
    expire_lease,
    jump_to_next_run,
    run_job,
)
from testproject.shop import tasks
from testproject.shop.models import Invoice, Line
from tests.run import more

AT = datetime(2090, 1, 1, 12, tzinfo=UTC)
DUMMY = f"{BaseTaskBackend.__module__.rpartition('.')[0]}.dummy.DummyBackend"

USINGS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("queue", {"queue_name": "b"}, {"queue_name": "a"}),
    ("priority", {"priority": 5}, {}),
    ("run_after", {"run_after": timedelta(hours=1)}, {}),
    ("run_after", {"run_after": timedelta(hours=1)}, {"run_after": timedelta(hours=2)}),
    ("run_after", {"run_after": AT}, {"run_after": AT + timedelta(microseconds=1)}),
    ("max_attempts", {"max_attempts": 2}, {"max_attempts": 3}),
    ("timeout", {"timeout": timedelta(minutes=1)}, {}),
    ("lease_ttl", {"lease": timedelta(minutes=1)}, {}),
    ("progress_timeout", {"progress_timeout": timedelta(minutes=1)}, {}),
    ("idempotency_key", {"idempotency_key": "k"}, {"idempotency_key": "l"}),
]


_cards = itertools.count()


@task
def sends_the_last_of_several_cards() -> None:
    """Another card in each run, and one invoice."""
    Job.objects.filter(task="shop.send_invoice").delete()
    tasks.send_invoice.enqueue(1, card=f"4111 {next(_cards)}")


@task
def sends_with_a_key(card: str) -> None:
    tasks.send_invoice.using(idempotency_key="once").enqueue(1, card=card)


@task
def enqueues_a_stranger() -> None:
    Context().run(tasks.add.enqueue, 1, 1)  # as a thread that the handler starts


class Stories:
    """The same in both of Django's test cases."""

    def test_drain_runs_what_is_due_and_what_that_enqueues_or_some_queues_alone(self) -> None:
        tasks.later.enqueue("x")
        tasks.start_children.enqueue(2)
        assert [one.task.rpartition(".")[2] for one in drain(queues=["mail"])] == ["later"]
        ran = drain()
        assert [one.status for one in ran] == [Status.COMPLETED] * 3
        assert [one.task.rpartition(".")[2] for one in ran] == ["start_children", "add", "add"]

    def test_async_handlers_have_their_context_too(self) -> None:
        result = more.counts_on_the_loop.enqueue(3)
        zombie = Zombie(result)
        zombie.freeze()
        assert [one.status for one in drain()] == [Status.COMPLETED]
        assert Job.objects.get().progress == {"done": 3, "total": 3}

    def test_drain_does_not_wait_for_backoffs(self) -> None:
        result = tasks.fail.enqueue("no")
        assert [one.status for one in drain(failures="keep")] == [Status.RETRYING]
        jump_to_next_run(result)
        assert [one.attempt for one in drain(failures="keep")] == [2]

    def test_drain_stops_what_never_ends(self) -> None:
        more.enqueues_itself.enqueue()
        with pytest.raises(DrainLimit, match="enqueues_itself"):
            drain(most_runs=10)

    def test_one_job_is_run_and_no_other(self) -> None:
        first, second = tasks.add.enqueue(1, 2), tasks.add.enqueue(3, 4)
        assert run_job(second).status == Status.COMPLETED
        assert Job.objects.get(pk=first.id).status == Status.PENDING
        with pytest.raises(AssertionError, match=r"is COMPLETED .* cannot be run now"):
            run_job(second)

    def test_assert_enqueued_finds_the_job_by_its_arguments_or_says_what_waits(self) -> None:
        tasks.add.enqueue(1, b=2)
        for args, kwargs in (((1, 2), {}), ((), {"a": 1, "b": 2}), ((1,), {"b": 2})):
            found = assert_enqueued(tasks.add, *args, **kwargs)
            assert (found.args, found.kwargs) == ([1], {"b": 2})
        for args, kwargs in (((2, 1), {}), ((True, 2), {}), ((), {"a": 2, "b": 1})):
            with pytest.raises(AssertionError, match="No waiting job"):
                assert_enqueued(tasks.add, *args, **kwargs)
        with pytest.raises(AssertionError, match=r"(?s)No waiting job .*args=\[9, 9\].*Waiting are:.*args=\[1\]"):
            assert_enqueued(tasks.add, 9, 9)
        drain()
        with pytest.raises(AssertionError, match="none"):
            assert_enqueued(tasks.add, 1, b=2)

    def test_what_a_handler_raises_is_raised(self) -> None:
        failing, fine = tasks.fail.enqueue("no luck"), tasks.add.enqueue(1, 2)
        with pytest.raises(RuntimeError, match="no luck") as raised:
            drain()
        assert raised.value.__notes__ == [
            f'Job {failing.id} of testproject.shop.tasks.fail, attempt 1. failures="keep" returns it.'
        ]
        assert [Job.objects.get(pk=one.id).status for one in (failing, fine)] == [Status.RETRYING, Status.PENDING]
        assert [one.status for one in drain()] == [Status.COMPLETED], "the other one was handed back"
        jump_to_next_run(failing)
        [ran] = drain(failures="keep")
        assert (ran.outcome, str(ran.error)) == ("FAILED", "no luck")
        jump_to_next_run(failing)
        with pytest.raises(RuntimeError, match="no luck"):
            run_job(failing)
        with pytest.raises(ValueError, match="neither"):
            drain(failures="ignore")  # type: ignore[arg-type]

    def test_callbacks_of_on_commit_are_called_once(self) -> None:
        with TestCase.captureOnCommitCallbacks(execute=True):
            more.enqueues_after_the_commit.enqueue()
            ran = drain()
        assert [one.task.rpartition(".")[2] for one in ran] == ["enqueues_after_the_commit", "add"]
        assert drain() == []

    def test_methods_of_a_task_can_be_patched(self) -> None:
        with mock.patch("testproject.shop.tasks.add.enqueue") as enqueue:
            tasks.add.enqueue(1, 2)
        enqueue.assert_called_once_with(1, 2)
        tasks.add.enqueue(1, 2)
        assert len(drain()) == 1
        with pytest.raises(FrozenInstanceError, match="priority is read-only"):
            tasks.add.priority = 3  # type: ignore[misc]

    def test_assert_enqueued_compares_what_using_said(self) -> None:
        for name, said, other in USINGS:
            Job.objects.all().delete()
            tasks.add.using(**other).enqueue(1, 2)
            with pytest.raises(AssertionError, match=rf"No waiting job .*{name}="):
                assert_enqueued(tasks.add.using(**said), 1, 2)
            assert assert_enqueued(tasks.add, 1, 2), "what the task itself says is not compared"
            wanted = Job.objects.get(pk=tasks.add.using(**said).enqueue(1, 2).id)
            assert assert_enqueued(tasks.add.using(**said), 1, 2) == wanted
            assert assert_enqueued(tasks.add.using(**{"priority": 0} | said), 1, 2) == wanted

    def test_assert_enqueued_tells_what_waits_instead(self) -> None:
        tasks.add.using(queue_name="a", priority=3).enqueue(1, 2)
        says = r"(?s)No waiting job .*args=\[1, 2\] kwargs=\{\} queue='b'\. .*args=\[1, 2\] kwargs=\{\} queue='a'$"
        with pytest.raises(AssertionError, match=says):
            assert_enqueued(tasks.add.using(queue_name="b"), 1, 2)

    def test_assert_enqueued_refuses_a_backend_whose_jobs_are_elsewhere(self) -> None:
        backends = {**settings.TASKS, "other": settings.TASKS["default"], "dummy": {"BACKEND": DUMMY}}
        with override_settings(TASKS=backends):
            tasks.add.using(backend="other").enqueue(1, 2)
            assert assert_enqueued(tasks.add.using(backend="other"), 1, 2)
            with pytest.raises(AssertionError, match="'dummy' is no PulseBackend"):
                assert_enqueued(replace(tasks.echo, backend="dummy"), 1)

    def test_assert_enqueued_does_not_print_what_is_masked(self) -> None:
        tasks.send_invoice.enqueue(1, card="4111 1111")
        with pytest.raises(AssertionError, match=r"differ in what is masked") as failure:
            assert_enqueued(tasks.send_invoice, 1, card="4222 2222")
        assert "1111" not in str(failure.value)
        assert "2222" not in str(failure.value)

    def test_assert_idempotent_does_not_print_what_is_masked(self) -> None:
        with pytest.raises(AssertionError, match=r"(?s)\+ 1 x a job it enqueued.*••••") as failure:
            assert_idempotent(more.sends_an_invoice, "4111 1111")
        assert "1111" not in str(failure.value)
        assert "masked value #1" in str(failure.value)
        assert f"{hash(repr(([1], {'card': '4111 1111'}))):x}" not in str(failure.value), (
            "a short secret can be guessed"
        )
        with pytest.raises(AssertionError, match="It returns ••••, repeated after a crash ••••") as failure:
            assert_idempotent(more.returns_a_secret, "4111 1111")
        assert "1111" not in str(failure.value)

    def test_what_is_masked_is_compared_all_the_same_and_jobs_that_wait_already_are_not(self) -> None:
        with pytest.raises(AssertionError, match=r"(?s)\+ 1 x .*masked value #2.*- 1 x .*masked value #1") as failure:
            assert_idempotent(sends_the_last_of_several_cards)
        assert "4111" not in str(failure.value)
        assert_idempotent(sends_with_a_key, "4111 1111")
        tasks.send_invoice.enqueue(1, card="4222 2222")
        with pytest.raises(AssertionError, match="masked value #1"):  # the one that waits has no number
            assert_idempotent(more.sends_an_invoice, "4111 1111")

    def test_a_job_that_is_enqueued_in_a_thread_of_its_own_counts(self) -> None:
        """It has no parent: the thread does not know of the run."""
        with pytest.raises(AssertionError, match=r"\+ 1 x a job it enqueued \{'task': '[a-z.]+add'"):
            assert_idempotent(enqueues_a_stranger)

    def test_a_lease_can_be_let_run_out(self) -> None:
        zombie = Zombie(tasks.add.enqueue(1, 2))
        expire_lease(zombie.claim.job_id)
        assert [reaped.lease for reaped in Job.objects.reap()] == [zombie.claim.lease]
        with pytest.raises(AssertionError, match="RETRYING: it has no lease"):
            expire_lease(zombie.claim.job_id)

    def test_a_zombie_reports_late_and_a_finished_job_waits_for_nothing(self) -> None:
        result = tasks.add.enqueue(1, 2)
        zombie = Zombie(result)
        zombie.freeze()
        assert run_job(result).status == Status.COMPLETED
        assert zombie.report(99).lost
        result.refresh()
        assert result.return_value == 3
        assert Attempt.objects.get(number=1).late_outcome == "SUCCEEDED"
        with pytest.raises(AssertionError, match="is not waiting"):
            jump_to_next_run(result)

    def test_an_atomic_task_is_idempotent_and_a_careless_one_is_not_and_the_row_is_named(self) -> None:
        assert_idempotent(tasks.make_invoice, 7)
        assert not Invoice.objects.exists()
        assert not Job.objects.exists()
        assert_idempotent(tasks.make_invoice_by_hand, 7)
        assert_idempotent(tasks.add, 1, b=2)
        assert_idempotent(more.get_or_create_invoice, 7)
        with pytest.raises(AssertionError, match=r"(?s)make_invoice_carelessly is not idempotent.*\+ 1 x shop.Invoice"):
            assert_idempotent(tasks.make_invoice_carelessly, 7)

    def test_keys_that_the_database_chose_are_compared_by_what_they_name(self) -> None:
        assert_idempotent(more.replace_invoice, 7)
        with pytest.raises(AssertionError, match="not idempotent"):
            assert_idempotent(more.replace_invoice_and_count, 7)
        assert_idempotent(more.replace_invoice_and_count, 7, ignore=["shop.Line.text"])

    def test_a_task_that_fails_cleanly_is_told_apart_from_one_that_is_not_idempotent(self) -> None:
        with pytest.raises(AssertionError, match=r"A clean run of .*fail did not complete: ValueError: bad"):
            assert_idempotent(tasks.fail, "bad", "ValueError")

    def test_what_a_handler_asks_for_is_no_failure(self) -> None:
        for asks in (more.snoozes_sync, more.gives_up):
            asks.enqueue()
        ran = drain()
        assert {(one.outcome, one.error) for one in ran} == {("SNOOZED", None), ("DISCARDED", None)}


class InATestCase(Stories, TestCase):
    pass


class InATransactionTestCase(Stories, TransactionTestCase):
    def tearDown(self) -> None:
        for model in (Line, Invoice, StoredAttempt, Job):
            model.objects.all().delete()


def test_the_fixtures(
    pulse_drain: Callable[..., Any],
    pulse_run: Callable[..., Any],
    assert_enqueued: Callable[..., Any],
    assert_idempotent: Callable[..., Any],
) -> None:
    result = tasks.add.enqueue(1, 2)
    assert_enqueued(tasks.add, 1, 2)
    assert pulse_run(result).status == Status.COMPLETED
    assert pulse_drain() == []
    assert_idempotent(tasks.make_invoice, 1)


@pytest.mark.usefixtures("pulse_db")
def test_ctrl_c_in_a_handler_stops_the_drain_and_leaves_no_job_running() -> None:
    more.is_interrupted.enqueue()
    with pytest.raises(KeyboardInterrupt):
        drain()
    assert Job.objects.get().status == Status.RETRYING
