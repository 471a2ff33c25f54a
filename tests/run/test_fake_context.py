"""A unit test calls a handler with a context that needs no job and no database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync

from pulse_django import Context, task
from pulse_django.exceptions import (
    EventTimedOut,
    InvalidJob,
    InvalidWorkflow,
    JobCancelled,
    NeededResultMissing,
    Snooze,
    UnstorableResult,
    UnsupportedValue,
    WaitFor,
)
from pulse_django.testing import fake_context


def charge(order: int) -> str:
    return f"receipt-{order}"


@task(takes_context=True)
def place(context: Context, order: int) -> Any:
    context.progress(1, 3, order=order)
    receipt = context.step("charge", charge, order)
    context.step("reserve", charge, order, atomic=True)
    context.sleep(60)
    approval = context.wait_for_event(f"approved:{order}")
    context.progress(3, 3, flush=True)
    return receipt, approval


@task(takes_context=True)
async def aplace(context: Context, order: int) -> Any:
    await context.aprogress(1)
    await context.acheck()

    async def acharge() -> str:
        return charge(order)

    await context.asleep(1)
    return await context.astep("charge", acharge), await context.await_for_event("approved")


@task(takes_context=True)
def completes(context: Context) -> None:
    with context.atomic() as completion:
        completion.result = 7


@task(takes_context=True)
def resumes(context: Context) -> Any:
    context.check()
    if not context.is_last_attempt:
        context.snooze(5)
    return context.attempt, context.checkpoint, context.meta, context.headers["Pulse-Fencing-Token"]


def test_it_records_progress_steps_sleeps_and_events() -> None:
    context = fake_context(events={"approved:7": {"by": "Ada"}})
    assert place.call(context, 7) == ("receipt-7", {"by": "Ada"})
    assert context.recorded.progress == [{"done": 1, "total": 3, "order": 7}, {"done": 3, "total": 3}]
    assert context.recorded.steps == {"charge": "receipt-7", "reserve": "receipt-7"}
    assert context.recorded.sleeps == [timedelta(minutes=1)]
    assert context.recorded.events == ["approved:7"]


def test_a_step_of_an_earlier_run_is_not_called_and_an_event_may_be_late_or_not_come_at_all() -> None:
    context = fake_context(attempt=2, steps={"charge": "earlier"}, events={"approved:7": None})
    assert place.call(context, 7) == ("earlier", None)
    assert context.recorded.steps == {"reserve": "receipt-7"}
    with pytest.raises(WaitFor, match="approved:7"):
        place.call(fake_context(), 7)
    with pytest.raises(EventTimedOut):
        place.call(fake_context(events={"approved:7": EventTimedOut("approved:7")}), 7)


def test_attempt_checkpoint_and_meta_are_those_that_were_given() -> None:
    with pytest.raises(Snooze):
        resumes.call(fake_context())
    context = fake_context(attempt=2, max_attempts=2, checkpoint={"done": 5}, meta={"by": "ada"})
    assert resumes.call(context) == (2, {"done": 5}, {"by": "ada"}, "2")
    with pytest.raises(JobCancelled):
        resumes.call(fake_context(cancelled=True))


@task(takes_context=True)
def total(context: Context) -> int:
    return sum(context.results.values())


@task(takes_context=True)
def report(context: Context) -> Any:
    return context.results.one(), context.results.not_done, context.batch, context.workflow


def test_the_results_of_needed_jobs_are_those_that_were_given() -> None:
    with pytest.raises(InvalidWorkflow, match=r"Pass fake_context\(results=\{...\}\)"):
        total.call(fake_context())
    assert total.call(fake_context(results={"measure": 3, "measure 2": 4})) == 7
    assert report.call(fake_context(results={"measure": (1, 2)})) == ([1, 2], {}, None, None), "stored as JSON"
    missing = NeededResultMissing("measure", "DEAD_LETTERED")
    context = fake_context(results={"measure": missing, "other": NeededResultMissing("other", "deleted")})
    assert (context.results.not_done, list(context.results)) == ({"measure": "dead"}, ["measure", "other"])
    with pytest.raises(NeededResultMissing):
        total.call(context)
    assert total.call(fake_context(results={})) == 0
    with pytest.raises(KeyError):
        context.results["unknown"]


def test_async_handlers_and_atomic_blocks_do_the_same() -> None:
    context = fake_context(events={"approved": 1})
    assert async_to_sync(aplace.acall)(context, 7) == ("receipt-7", 1)
    assert context.recorded.steps == {"charge": "receipt-7"}
    completes.call(context)
    assert context.recorded.result == 7
    with pytest.raises(RuntimeError, match="already completed"):
        context.step("late", charge, 7)


def test_what_a_job_could_not_keep_is_refused_here_too() -> None:
    context = fake_context()
    with pytest.raises(UnsupportedValue):
        context.progress(1, when=object())
    with pytest.raises(UnstorableResult):
        context.step("set", lambda: {1})
    context.step("twice", charge, 1)
    with pytest.raises(InvalidJob, match="name of its own"):
        context.step("twice", charge, 1)
