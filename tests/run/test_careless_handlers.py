"""Handlers that do what nobody should, and what becomes of their jobs, their workers and their evidence."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from django.db import OperationalError

from pulse_django import StaleToken, api, fence, fenced_update
from pulse_django.exceptions import LeaseLost
from pulse_django.metrics.minute_stats import counted_in
from pulse_django.metrics.vital_signs import LATE_REPORTS
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform
from pulse_django.run.registry import Registry, registry
from pulse_django.signals import error_after_completion, job_finished
from pulse_django.tasks import task
from pulse_django.testing import Zombie, assert_idempotent, run_job
from testproject.shop.models import Invoice, Order
from tests.factories import make_job
from tests.faults import each_of
from tests.rival import Rival
from tests.run import more
from tests.run.test_handlers import claimed_run, context_of

pytestmark = pytest.mark.usefixtures("pulse_db")


@pytest.mark.parametrize("name", ["snoozes_badly", "returns_something_shifty"])
def test_a_mistake_is_a_failure_of_its_own_job(name: str) -> None:
    job = make_job(task=f"tests.run.more.{name}")
    assert run_job(job, failures="keep").outcome == OutcomeName.FAILED
    job.refresh_from_db()
    assert job.status in (Status.RETRYING, Status.DEAD_LETTERED)
    assert job.last_error


def test_a_reason_that_is_no_text_is_told_as_text() -> None:
    job = make_job(task="tests.run.more.discards_an_exception")
    assert run_job(job).status == Status.CANCELLED
    job.refresh_from_db()
    assert job.cancel_reason == "ValueError('x')"


class TestProgress:
    def test_a_flush_waits_for_a_locked_row(self, rival: Rival) -> None:
        job = make_job()
        context = context_of(claimed_run(job))
        rival.lock_row(job.pk)
        threading.Timer(0.2, rival.rollback).start()
        context.progress(1, flush=True)
        assert api.progress(job.pk) == {"done": 1}

    def test_what_could_not_be_delivered_is_kept_unless_there_is_newer(self) -> None:
        run = claimed_run(make_job())
        run.note_progress({"done": 1}, limit=100)
        taken = run.take_progress()
        run.give_back(taken)
        assert run.take_progress() == taken
        run.note_progress({"done": 2}, limit=100)
        run.give_back(taken)
        assert run.take_progress() == '{"done":2}'


class TestAfterTheCompletion:
    @pytest.mark.parametrize(
        ("name", "error"),
        [
            ("snoozes_after_completion", "pulse_django.exceptions.Snooze"),
            ("has_a_rude_callback", "builtins.RuntimeError"),
            ("completes_and_raises", "builtins.RuntimeError"),
            ("completes_twice", "builtins.RuntimeError"),
        ],
    )
    def test_what_follows_changes_nothing_and_is_logged_kept_and_signalled(
        self, name: str, error: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        heard: list[Any] = []
        listener = lambda **facts: heard.append(facts)  # noqa: E731 - a name for connect and disconnect
        error_after_completion.connect(listener)
        finished: list[Any] = []
        observer = lambda **facts: finished.append(facts["ending"].status)  # noqa: E731
        job_finished.connect(observer)
        try:
            job = make_job(task=f"tests.run.more.{name}")
            assert run_job(job, failures="keep").status == Status.COMPLETED
        finally:
            error_after_completion.disconnect(listener)
            job_finished.disconnect(observer)
        attempt = Attempt.objects.get()
        assert (attempt.outcome, attempt.late_outcome, attempt.error_class) == ("SUCCEEDED", "FAILED", error)
        assert attempt.late_at is not None
        assert error.rpartition(".")[2] in attempt.traceback
        [one] = heard
        assert (one["claim"].job_id, one["error"].error_class) == (job.pk, error)
        assert finished == [Status.COMPLETED]
        [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert "completed, then the handler raised" in record.getMessage()
        assert record.exc_info

    def test_to_be_asked_to_stop_afterwards_is_no_error_and_a_second_block_is_refused(self) -> None:
        performed = perform(claimed_run(make_job(task="tests.run.more.completes_and_checks")))
        assert isinstance(performed.error, LeaseLost)
        assert performed.afterwards is None
        performed = perform(claimed_run(make_job(task="tests.run.more.completes_twice")))
        assert isinstance(performed.error, RuntimeError)
        assert "the writes of a second atomic() would be lost" in str(performed.error)
        assert Invoice.objects.count() == 1

    def test_it_is_not_counted_as_a_report_that_came_too_late(self) -> None:
        run_job(make_job(task="tests.run.more.completes_and_raises"), failures="keep")
        entry = Attempt.objects.get()
        assert entry.late_at is not None
        tally = counted_in("default", entry.late_at.replace(second=0, microsecond=0)).signs
        assert not tally.get(LATE_REPORTS.name)


@pytest.mark.parametrize("name", ["checks_in_transactions", "checks_while_atomic"])
def test_checking_inside_a_transaction_works_in_a_test_as_it_does_in_production(name: str) -> None:
    assert run_job(make_job(task=f"tests.run.more.{name}")).status == Status.COMPLETED


def test_a_run_that_could_not_be_prepared_is_handed_back_and_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    import pulse_django.run.execute

    job = make_job(task="shop.echo", args=[1], max_attempts=1)
    run = claimed_run(job)

    def unreachable(*_: Any, **__: Any) -> None:
        raise OperationalError("the network")

    monkeypatch.setattr(pulse_django.run.execute, "prepared", unreachable)
    performed = perform(run)
    assert performed.report is not None
    assert performed.report.outcome.name == OutcomeName.RELEASED
    assert Job.objects.settle([performed.report]).accepted == {run.claim.lease: Status.PENDING}


class TestIdempotence:
    def test_children_are_compared(self) -> None:
        assert_idempotent(more.fans_out_with_a_key)
        with pytest.raises(AssertionError, match=r"(?s)not idempotent.*a job it enqueued.*get_or_create_invoice"):
            assert_idempotent(more.fans_out)

    def test_a_repeated_run_must_complete(self) -> None:
        with pytest.raises(
            AssertionError, match=r"repeated after a crash .* did not complete: ValueError: already billed"
        ):
            assert_idempotent(more.refuses_to_run_twice, 7)

    def test_a_task_with_one_attempt_can_be_rehearsed_and_one_that_runs_at_most_once_not(self) -> None:
        assert_idempotent(more.has_one_attempt)
        with pytest.raises(ValueError, match=r"runs_once: with at_most_once=True .* nothing to compare"):
            assert_idempotent(more.runs_once)


class TestRegistry:
    def test_a_discovery_that_failed_is_told_again(self, settings: Any) -> None:
        settings.PULSE = {"TASK_MODULES": ["there.is.no.such"]}
        mine = Registry()
        for _ in range(2):
            with pytest.raises(ImportError):
                mine.discover()

    def test_a_clash_registers_nothing(self) -> None:
        with pytest.raises(Exception, match=r"Two tasks are called 'shop\.parrot'"):
            task(name="test.fresh", aliases=("shop.parrot",))(more.fans_out.func)
        assert "test.fresh" not in list(registry)

    @pytest.mark.parametrize("option", ["idempotency_key", "run_after", "delay"])
    def test_what_belongs_to_one_call_cannot_be_declared(self, option: str) -> None:
        with pytest.raises(TypeError, match="using"):
            task(**{option: "x"})  # type: ignore[call-overload]


class TestFencing:
    def test_a_row_that_no_longer_matches_is_not_written(self, rival: Rival) -> None:
        Order.objects.create(number=1, state="open")
        run = Zombie(make_job())
        rival.begin()
        rival.run(Order.objects.filter(number=1).update, state="closed")
        with rival.blocks(fenced_update, Order.objects.filter(state="open"), run.claim, state="paid") as waiting:
            rival.commit()
            assert waiting.result(20) == 0
        assert Order.objects.get().state == "closed"

    def test_an_alias_may_be_named(self) -> None:
        Order.objects.create(number=1)
        older, newer = Zombie(make_job()), Zombie(make_job())
        assert fenced_update(Order.objects.using("default"), newer.claim, state="paid") == 1
        with pytest.raises(StaleToken):
            fenced_update(Order.objects.using("default"), older.claim, state="open")

    @each_of("", "x" * 201, "nul\x00", "\ud800", 5)
    def test_a_resource_must_have_a_name(self, *, resource: Any) -> None:
        with pytest.raises(ValueError, match="resource"):
            fence(resource, Zombie(make_job()).claim)
