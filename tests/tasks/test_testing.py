"""``pulse_django.testing``: a product of its own, tested as its users use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.test import TestCase, TransactionTestCase

from pulse_django.exceptions import PayloadError
from pulse_django.models import Attempt, Job
from pulse_django.states import Status
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
from tests.tasks import more


class Stories:
    """The same in both of Django's test cases."""

    def test_drain_runs_what_is_due_and_what_that_enqueues(self) -> None:
        tasks.start_children.enqueue(2)
        ran = drain()
        assert [one.status for one in ran] == [Status.COMPLETED] * 3
        assert [one.task.rpartition(".")[2] for one in ran] == ["start_children", "add", "add"]

    def test_async_handlers_have_their_context_too(self) -> None:
        result = more.counts_on_the_loop.enqueue(3)
        zombie = Zombie(result)
        zombie.freeze()
        assert [one.status for one in drain()] == [Status.COMPLETED]
        assert Job.objects.get().progress == {"done": 3, "total": 3}

    def test_drain_may_be_kept_to_some_queues(self) -> None:
        tasks.later.enqueue("x")
        tasks.add.enqueue(1, 2)
        assert [one.task.rpartition(".")[2] for one in drain(queues=["mail"])] == ["later"]

    def test_drain_does_not_wait_for_backoffs(self) -> None:
        result = tasks.fail.enqueue("no")
        assert [one.status for one in drain()] == [Status.RETRYING]
        jump_to_next_run(result)
        assert [one.attempt for one in drain()] == [2]

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

    def test_assert_enqueued_finds_the_job_or_says_what_waits(self) -> None:
        tasks.add.enqueue(1, b=2)
        assert assert_enqueued(tasks.add, 1, b=2).kwargs == {"b": 2}
        with pytest.raises(AssertionError, match=r"(?s)No waiting job .*args=\[9, 9\].*Waiting are:.*args=\[1\]"):
            assert_enqueued(tasks.add, 9, 9)
        drain()
        with pytest.raises(AssertionError, match="none"):
            assert_enqueued(tasks.add, 1, b=2)

    def test_a_lease_can_be_let_run_out(self) -> None:
        zombie = Zombie(tasks.add.enqueue(1, 2))
        expire_lease(zombie.claim.job_id)
        assert [reaped.lease for reaped in Job.objects.reap()] == [zombie.claim.lease]
        with pytest.raises(AssertionError, match="RETRYING: it has no lease"):
            expire_lease(zombie.claim.job_id)

    def test_a_zombie_reports_late(self) -> None:
        result = tasks.add.enqueue(1, 2)
        zombie = Zombie(result)
        zombie.freeze()
        assert run_job(result).status == Status.COMPLETED
        assert zombie.report(99).lost
        result.refresh()
        assert result.return_value == 3
        assert Attempt.objects.get(number=1).late_outcome == "SUCCEEDED"

    def test_a_finished_job_waits_for_nothing(self) -> None:
        result = tasks.add.enqueue(1, 2)
        drain()
        with pytest.raises(AssertionError, match="waits for nothing"):
            jump_to_next_run(result)

    def test_an_atomic_task_is_idempotent(self) -> None:
        assert_idempotent(tasks.make_invoice, 7)
        assert_idempotent(tasks.make_invoice_by_hand, 7)
        assert_idempotent(tasks.add, 1, b=2)

    def test_a_careless_task_is_not_and_the_row_is_named(self) -> None:
        with pytest.raises(AssertionError, match=r"(?s)make_invoice_carelessly is not idempotent.*\+ 1 x shop.Invoice"):
            assert_idempotent(tasks.make_invoice_carelessly, 7)
        assert_idempotent(more.get_or_create_invoice, 7)

    def test_the_comparison_leaves_nothing_behind(self) -> None:
        assert_idempotent(tasks.make_invoice, 7)
        assert not Invoice.objects.exists()
        assert not Job.objects.exists()

    def test_keys_that_the_database_chose_are_compared_by_what_they_name(self) -> None:
        assert_idempotent(more.replace_invoice, 7)
        with pytest.raises(AssertionError, match="not idempotent"):
            assert_idempotent(more.replace_invoice_and_count, 7)
        assert_idempotent(more.replace_invoice_and_count, 7, ignore=["shop.Line.text"])

    def test_a_task_that_fails_cleanly_is_told_apart_from_one_that_is_not_idempotent(self) -> None:
        with pytest.raises(AssertionError, match=r"A clean run of .*fail did not complete: ValueError: bad"):
            assert_idempotent(tasks.fail, "bad", "ValueError")

    def test_bad_arguments_are_refused_as_in_production(self) -> None:
        with pytest.raises(PayloadError):
            tasks.echo.enqueue("\x00")


class InATestCase(Stories, TestCase):
    pass


class InATransactionTestCase(Stories, TransactionTestCase):
    def tearDown(self) -> None:
        for model in (Line, Invoice, Attempt, Job):
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
