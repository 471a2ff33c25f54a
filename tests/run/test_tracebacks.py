"""What is stored of a failure begins where the handler does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from pulse_django import task
from pulse_django.models import Attempt
from pulse_django.queue.words.payloads import ErrorReport, begin_at_handler
from pulse_django.run import execute
from pulse_django.run.execute import perform, perform_async
from pulse_django.testing.drain import claimed, reported

pytestmark = pytest.mark.usefixtures("pulse_db")


def fail() -> None:
    try:
        json.loads("[")
    except ValueError as error:
        raise LookupError("no such order") from error


@task
def sync() -> None:
    fail()


@task(takes_context=True)
def with_context(context: Any) -> None:
    fail()


@task(atomic=True)
def atomic() -> None:
    fail()


@task
async def is_async() -> None:
    fail()


@task(chunk=2)
def chunk(items: Any) -> None:
    fail()


@pytest.mark.parametrize("one", [sync, with_context, atomic, is_async, chunk], ids=lambda one: one.func.__name__)
def test_a_traceback_begins_with_the_handler(one: Any) -> None:
    run = claimed(one.enqueue())
    performed = asyncio.run(perform_async(run, one)) if one is is_async else perform(run)
    for member in performed.members or [performed]:
        reported(member)
    stored = Attempt.objects.get().traceback
    files = [line for line in stored.splitlines() if line.startswith("  File ")]
    assert f'{Path(__file__).name}", line ' in files[0]  # of the cause, which is told first
    assert stored.count("Traceback (most recent call last):") == 2
    first = stored.rpartition("Traceback (most recent call last):\n")[2].splitlines()[0]
    assert first.startswith(f'  File "{__file__}"')
    assert first.endswith(f"in {one.func.__name__}")


def test_without_a_frame_of_the_handler_those_of_pulse_stay() -> None:
    try:
        exec(compile("raise LookupError", execute.__file__, "exec"))
    except LookupError as raised:
        error = raised.with_traceback(raised.__traceback__ and raised.__traceback__.tb_next)
    begin_at_handler(error)
    assert execute.__file__ in ErrorReport.of(error).traceback
