"""Without PostgreSQL a task runs at once, with the context that it has in a worker. No database is asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from typing import Any

import pytest
from django.test import override_settings

from pulse_django import Context, task
from pulse_django.exceptions import InvalidJob
from pulse_django.run.registry import TaskResultStatus, task_backends

OURS = "pulse_django.immediate.ImmediateBackend"
SAW: list[Any] = []


@task(name="immediate.work", queue_name="mail", takes_context=True, max_attempts=5)
def work(context: Context, number: int, *, fails: bool = False) -> Any:
    context.check()
    context.progress(1, 2, flush=True)
    doubled = context.step("double", lambda: 2 * number)
    context.sleep(3600)
    if fails:
        raise ValueError("no")
    SAW.append(context.job_id)
    assert (dict(context.results), context.batch) == ({}, None), "it needs no other jobs"
    return {"doubled": doubled, "meta": context.meta, "last": context.is_last_attempt, "task": context.task_result.id}


@task(name="immediate.awork", queue_name="mail", takes_context=True)
async def awork(context: Context, numbers: list[int]) -> Any:
    await context.aprogress(1)
    return [*numbers, context.attempt]


@pytest.fixture(autouse=True)
def _is_set() -> Iterator[None]:
    SAW.clear()
    with override_settings(TASKS={"default": {"BACKEND": OURS}}):
        yield


def test_a_handler_runs_at_once_with_our_context_in_any_queue() -> None:
    result = work.using(queue_name="other", meta={"tenant": "blue"}).enqueue(4)
    assert result.status == TaskResultStatus.SUCCESSFUL, result.errors
    assert result.return_value == {"doubled": 8, "meta": {"tenant": "blue"}, "last": True, "task": result.id}
    assert result.task == work.using(queue_name="other", meta={"tenant": "blue"})
    work.enqueue(4)
    assert len(set(SAW)) == 2, "each job has an id of its own"


def test_async_handlers_too_and_a_failure_is_in_the_result() -> None:
    assert awork.enqueue((1, 2)).return_value == [1, 2, 1]  # type: ignore[arg-type]
    result = work.enqueue(4, fails=True)
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path == "builtins.ValueError"


def test_what_could_not_be_a_job_is_refused() -> None:
    for args in ((), (1, 2), (date(2026, 1, 1),)):
        with pytest.raises(InvalidJob):
            work.enqueue(*args)  # type: ignore[arg-type]
    assert SAW == []


def test_queues_can_be_named() -> None:
    with override_settings(TASKS={"default": {"BACKEND": OURS, "QUEUES": ["mail"]}}):
        assert task_backends["default"].queues == {"mail"}
