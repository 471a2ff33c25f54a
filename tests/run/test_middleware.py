"""Middleware cannot hide how a run ended, and what cannot be middleware is told before any job is claimed."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from inspect import iscoroutinefunction
from io import StringIO
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.test import override_settings

from pulse_django import Chunk, task
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform_async
from pulse_django.run.middleware import configured
from pulse_django.run.registry import registry
from pulse_django.testing import drain, run_job
from tests.crash.processes import ROOT
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults, each_of
from tests.run.test_handlers import claimed_run

pytestmark = pytest.mark.usefixtures("pulse_db")


def around(*names: str) -> Any:
    return override_settings(PULSE={"MIDDLEWARE": [f"tests.run.around.{name}" for name in names]})


KINDS = ["sync", "async"]


def run(job: Job) -> str:
    """Run a job as a worker would, async handlers on a loop. Return its status."""
    task = registry.get(job.task)
    assert task is not None
    if not iscoroutinefunction(task.func):
        return run_job(job, failures="keep").status
    performed = asyncio.run(perform_async(claimed_run(job), task))
    assert performed.report is not None
    [status] = Job.objects.settle([performed.report]).accepted.values()
    return status


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("names", [["swallows"], ["passes", "swallows"], ["swallows", "passes"]], ids="-".join)
def test_an_exception_that_middleware_swallows_fails_the_run(
    kind: str, names: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    job = make_job(task=f"tests.run.more.raises_{kind}", max_attempts=1)
    with around(*names):
        assert run(job) == Status.DEAD_LETTERED
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.error_class, attempt.message) == ("FAILED", "builtins.ValueError", "no luck")
    assert f"in raises_{kind}" in attempt.traceback
    [record] = [record for record in caplog.records if "suppressed" in record.getMessage()]
    assert (record.levelno, "ValueError" in record.getMessage()) == (logging.WARNING, True)


WAYS = [  # the middleware, the behaviour of the handler, and the end of its job
    (["swallows"], "snoozes", Status.PENDING, "SNOOZED", ""),
    (["swallows", "raises_on_the_way_in"], "raises", Status.DEAD_LETTERED, "FAILED", "builtins.ValueError: not in"),
    (["replaces"], "raises", Status.DEAD_LETTERED, "FAILED", "builtins.LookupError: replaced"),
    (["swallows", "passes"], "returns", Status.COMPLETED, "SUCCEEDED", ""),
]


@pytest.mark.parametrize("kind", KINDS)
@each_of(*WAYS)
def test_what_middleware_lets_through_or_replaces_decides(
    kind: str, *, names: Any, does: Any, status: Any, outcome: Any, error: Any
) -> None:
    with around(*names):
        empty_tables()
        assert run(make_job(task=f"tests.run.more.{does}_{kind}", max_attempts=1)) == status
        attempt = Attempt.objects.get()
        said = f"{attempt.error_class}: {attempt.message}" if error else ""
        assert (attempt.outcome, said) == (outcome, error)
        assert Job.objects.get().result == ("done" if does == "returns" else None)


NO_MIDDLEWARE = {
    "not_callable": "is a str and not callable",
    "forgot_the_decorator": "contextlib.contextmanager",
    "is_a_coroutine": "is async",
    "is_an_async_generator": "is async",
    "is_not_there": "cannot be imported",
}


@pytest.mark.parametrize(("name", "says"), NO_MIDDLEWARE.items(), ids=NO_MIDDLEWARE)
def test_what_cannot_be_middleware_is_told_by_the_check_and_keeps_a_worker_from_starting(name: str, says: str) -> None:
    with around("passes", name):
        [error] = [one for one in run_checks() if one.id == "pulse_django.E020"]
        assert says in error.msg
        assert f"tests.run.around.{name}" in error.msg
        with pytest.raises(ImproperlyConfigured, match=says):
            configured()
        with pytest.raises(CommandError, match=says):
            call_command("pulse_worker", "--burst", stdout=StringIO())


def test_good_middleware_passes_the_check() -> None:
    with around("passes", "swallows"):
        assert [one for one in run_checks() if one.id == "pulse_django.E020"] == []


@task(name="tests.chunk_inside_middleware", chunk=10, max_attempts=1)
def takes_a_chunk(chunk: Chunk) -> None:
    if chunk[0].kwargs.get("raises"):
        raise ValueError("no luck")


def test_the_examples_of_the_documentation_go_with_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asked the chunk for a job's id failed every job after its work was done."""
    with all_faults() as about:
        for page, name in (("middleware", "timed"), ("error-trackers", "reported")):
            blocks = re.findall(r"```python\n(.*?)```", (ROOT / f"docs/how-to/{page}.md").read_text(), re.DOTALL)
            example = ModuleType(f"tests_example_{name}")
            [code] = [block for block in blocks if "@contextmanager" in block]
            exec(code, vars(example))
            monkeypatch.setitem(sys.modules, example.__name__, example)
            with about(page), override_settings(PULSE={"MIDDLEWARE": [f"{example.__name__}.{name}"]}):
                for _ in range(2):
                    takes_a_chunk.enqueue()
                assert [one.status for one in drain()] == [Status.COMPLETED] * 2
                takes_a_chunk.enqueue(raises=True)
                assert [str(one.error) for one in drain(failures="keep")] == ["no luck"]
