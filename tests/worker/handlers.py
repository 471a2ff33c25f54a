"""Handlers for workers under test: the same one for each executor, and traces of what they and others noticed.

The worker loads this module by ``PULSE["TASK_MODULES"]``; ``PULSE_TRACE`` names the file that traces are appended to.
"""

from __future__ import annotations

import asyncio
import builtins
import ctypes
import faulthandler
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from pulse_django import NO_RETRIES, Context, RetryLater, signals, task
from pulse_django.exceptions import StopRun
from pulse_django.run.registry import registry, task_finished, task_started

Nap = Callable[[float], Awaitable[None]]
Handler = Callable[..., Coroutine[Any, Any, Any]]
EXECUTORS = ("thread", "loop", "process")


def trace(what: str, job_id: int | str, **facts: Any) -> None:
    """Append a line at once: the next moment this process may be gone."""
    line = json.dumps({"what": what, "job": int(job_id), "pid": os.getpid(), "at": time.monotonic()} | facts)
    file = os.open(os.environ["PULSE_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(file, line.encode() + b"\n")
    os.close(file)


@task(takes_context=True, at_most_once=True)
def naps_once(context: Context, seconds: float) -> None:
    trace("begin", context.job_id)
    time.sleep(seconds)


# The same handlers for all executors


async def _nap_on_the_loop(seconds: float) -> None:
    await asyncio.sleep(seconds)


async def _nap_in_a_thread(seconds: float) -> None:
    time.sleep(seconds)


def _drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that never really waits."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waited for a loop")


def everywhere(**options: Any) -> Callable[[Handler], Handler]:
    """Make a task of a handler for each executor: thread.NAME, loop.NAME and process.NAME."""

    def decorate(handler: Handler) -> Handler:
        def blocking(context: Context, *args: Any) -> Any:
            return _drive(handler(context, _nap_in_a_thread, *args))

        async def awaiting(context: Context, *args: Any) -> Any:
            return await handler(context, _nap_on_the_loop, *args)

        name = handler.__name__
        for function in (blocking, awaiting):  # Django takes functions of modules only
            function.__qualname__ = f"{function.__name__}_{name}"
        common: dict[str, Any] = {"takes_context": True, "max_attempts": 1, **options}
        task(name=f"thread.{name}", **common)(blocking)
        task(name=f"loop.{name}", **common)(awaiting)
        task(name=f"process.{name}", isolation="process", **common)(blocking)
        return handler

    return decorate


@everywhere()
async def succeeds(context: Context, nap: Nap, number: int) -> dict[str, int]:
    trace("ran", context.job_id)
    return {"answer": number}


@everywhere()
async def tells_its_context(context: Context, nap: Nap) -> dict[str, Any]:
    return {
        "job_id": context.job_id,
        "attempt": context.attempt,
        "token": context.token,
        "last": context.is_last_attempt,
        "remaining": context.lease_remaining().total_seconds(),
    }


@everywhere()
async def raises(context: Context, nap: Nap, kind: str) -> None:
    raise getattr(builtins, kind)("no")


def _complete(context: Context) -> None:
    with context.atomic():
        pass


@everywhere()
async def raises_after_completion(context: Context, nap: Nap) -> None:
    if nap is _nap_on_the_loop:
        await sync_to_async(_complete)(context)
    else:
        _complete(context)
    raise ValueError("too late")


@everywhere()
async def raises_what_cannot_be_told(context: Context, nap: Nap) -> None:
    class Unspeakable(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    raise Unspeakable


@everywhere()
async def raises_what_no_column_takes(context: Context, nap: Nap) -> None:
    raise ValueError("a\x00b\ud800c")


@everywhere()
async def recurses(context: Context, nap: Nap) -> None:
    def deeper() -> None:
        deeper()

    deeper()


@everywhere()
async def returns_a_set(context: Context, nap: Nap) -> Any:
    return {1, 2}


@everywhere()
async def snoozes(context: Context, nap: Nap) -> str:
    if context.checkpoint is None:
        context.progress(1)
        context.snooze(timedelta(milliseconds=10))
    return "awake"


@everywhere(max_attempts=2, retry=NO_RETRIES)
async def retries_later(context: Context, nap: Nap) -> None:
    raise RetryLater(0.01, "busy")


@everywhere()
async def discards(context: Context, nap: Nap) -> None:
    context.discard("nobody wants it")


@everywhere(max_attempts=2)
async def resumes(context: Context, nap: Nap) -> Any:
    if context.checkpoint is None:
        context.progress(1, 2, page="x")
        raise RuntimeError("and no further")
    return context.checkpoint


@everywhere(timeout=timedelta(seconds=1.5))
async def takes_too_long(context: Context, nap: Nap) -> str:
    await _sleeps_through(context, nap)
    return "too late"


@everywhere(progress_timeout=timedelta(seconds=1.5))
async def stalls(context: Context, nap: Nap) -> str:
    context.progress(1)
    await _sleeps_through(context, nap)
    return "too late"


async def _sleeps_through(context: Context, nap: Nap) -> None:
    trace("asleep", context.job_id)
    try:
        await nap(5.0)
        trace("slept on", context.job_id)
    finally:
        trace("left", context.job_id)


@everywhere(timeout=timedelta(seconds=1.5))
async def is_told_of_its_deadline(context: Context, nap: Nap) -> None:
    await _works_until_told(context, nap)


@everywhere()
async def is_cancelled(context: Context, nap: Nap) -> None:
    await _works_until_told(context, nap)


@everywhere(max_attempts=2)
async def loses_its_lease(context: Context, nap: Nap) -> str:
    if context.attempt == 1:
        await _works_until_told(context, nap)
    return f"attempt {context.attempt}"


async def _works_until_told(context: Context, nap: Nap) -> None:
    context.progress(3, 4)
    trace("works", context.job_id)
    try:
        while True:
            context.check()
            await nap(0.05)
    except (StopRun, asyncio.CancelledError) as error:
        trace("told", context.job_id, by=type(error).__name__)
        raise


def registered(name: str) -> Any:
    """Return a task by its name."""
    found = registry.get(name)
    assert found is not None, name
    return found


# Handlers that run into trouble, or make it


@task(takes_context=True, max_attempts=3)
def is_killed(context: Context) -> None:
    trace("ran", context.job_id)
    os.kill(os.getpid(), signal.SIGKILL)


@task(takes_context=True, max_attempts=1)
def exits(context: Context) -> None:
    trace("ran", context.job_id)
    os._exit(3)


@task(takes_context=True, max_attempts=1)
def segfaults(context: Context) -> None:
    trace("ran", context.job_id)
    faulthandler.disable()  # its report would only fill the log
    ctypes.string_at(0)


@task(takes_context=True, max_attempts=1, isolation="process")
def closes_all_files_of_its_process(context: Context) -> None:
    trace("ran", context.job_id)
    os.closerange(3, 1_000)


@task(takes_context=True, max_attempts=1)
def closes_all_files(context: Context) -> None:
    trace("ran", context.job_id)
    os.closerange(3, 1_000)


@task(takes_context=True)
def naps(context: Context, seconds: float) -> str:
    """Sleep, and never look up."""
    trace("begin", context.job_id, attempt=context.attempt)
    time.sleep(seconds)
    trace("end", context.job_id, attempt=context.attempt)
    return "slept"


@task(takes_context=True, isolation="process")
def naps_in_a_process(context: Context, seconds: float) -> str:
    trace("begin", context.job_id, attempt=context.attempt)
    time.sleep(seconds)
    trace("end", context.job_id, attempt=context.attempt)
    return "slept"


@task(takes_context=True)
async def naps_on_the_loop(context: Context, seconds: float) -> str:
    trace("begin", context.job_id, attempt=context.attempt)
    await asyncio.sleep(seconds)
    trace("end", context.job_id, attempt=context.attempt)
    return "slept"


@task(takes_context=True)
def naps_while_allowed(context: Context, seconds: float) -> str:
    """Sleep in small steps, and stop when told to."""
    trace("begin", context.job_id, attempt=context.attempt)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            context.check()
            time.sleep(0.02)
    except StopRun as error:
        trace("told", context.job_id, by=type(error).__name__)
        raise
    trace("end", context.job_id, attempt=context.attempt)
    return "slept"


@task(takes_context=True, timeout=timedelta(seconds=1.5))
def overstays(context: Context) -> None:
    """Go on for long after the deadline in the first run; be quick in the others."""
    first = not context.task_result.errors
    trace("begin", context.job_id, attempt=context.attempt)
    time.sleep(3 if first else 0)
    trace("end", context.job_id, attempt=context.attempt)


@task(takes_context=True, max_attempts=1, timeout=timedelta(seconds=0.3))
def never_comes_back(context: Context) -> None:
    trace("begin", context.job_id)
    time.sleep(3600)


@task(takes_context=True)
def holds_the_interpreter(context: Context, letters: int) -> None:
    """A regular expression that backtracks for a second or a minute: no other thread gets to run meanwhile."""
    begin = time.monotonic()
    assert re.match(r"(a+)+$", "a" * letters + "b") is None
    trace("held", context.job_id, seconds=time.monotonic() - begin)


@task(takes_context=True, isolation="process", timeout=timedelta(seconds=1))
def holds_its_interpreter(context: Context, letters: int) -> None:
    assert re.match(r"(a+)+$", "a" * letters + "b") is None


@task(takes_context=True, isolation="process")
def naps_apart(context: Context, seconds: float) -> None:
    trace("begin", context.job_id)
    time.sleep(seconds)


@task(takes_context=True)
def eats(context: Context, mebibytes: int) -> None:
    _eaten.append(b"x" * (mebibytes * 2**20))
    trace("ran", context.job_id)


_eaten: list[bytes] = []


@task(takes_context=True)
def writes_a_line(context: Context) -> None:
    trace("ran", context.job_id)


@task(takes_context=True)
def orphans_a_process(context: Context) -> None:
    """Start a process whose parent ends before it does, as a daemon's would."""
    subprocess.run(["/bin/sh", "-c", "sleep 0.3 & echo $! >&2"], check=True)
    trace("ran", context.job_id)


@task(takes_context=True, isolation="process")
def lists_its_files(context: Context) -> dict[str, list[str]]:
    """What this process has open, and what a program that it starts would inherit."""
    script = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3'))"
    program = [sys.executable, "-c", script]
    started = subprocess.run(program, close_fds=False, capture_output=True, text=True, check=True)
    mine = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the one that lists them
            mine.append(os.readlink(f"/proc/self/fd/{name}"))
    return {"mine": mine, "inherited": started.stdout.split()}


@task(takes_context=True)
def asks_and_naps(context: Context, seconds: float) -> None:
    """Use the database first."""
    _ask()
    trace("begin", context.job_id)
    time.sleep(seconds)
    trace("end", context.job_id)


@task(takes_context=True)
async def asks_and_naps_on_the_loop(context: Context, seconds: float) -> None:
    await sync_to_async(_ask)()
    trace("begin", context.job_id)
    await asyncio.sleep(seconds)
    trace("end", context.job_id)


def _ask() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")


@everywhere()
async def naps_a_little(context: Context, nap: Nap) -> None:
    trace("begin", context.job_id)
    await nap(1.0)


# Middleware and receivers


@contextmanager
def traced(context: Context) -> Iterator[None]:
    """Middleware."""
    trace("enter", context.job_id)
    try:
        yield
    finally:
        trace("leave", context.job_id)


def listen() -> None:
    """Trace all signals; each has a receiver that raises as well."""
    logging.getLogger("django.dispatch").addHandler(logging.NullHandler())
    logging.getLogger("django.dispatch").propagate = False
    for name in (
        "job_started",
        "job_finished",
        "job_failed",
        "job_dead_lettered",
        "lease_lost",
        "job_reaped",
        "error_after_completion",
    ):
        _trace_signal(name, getattr(signals, name))
    for name, django_signal in (("task_started", task_started), ("task_finished", task_finished)):
        _trace_signal(name, django_signal)


def _trace_signal(name: str, to_trace: Any) -> None:
    def receive(sender: Any, **facts: Any) -> None:
        ended = getattr(facts.get("ending"), "status", "") or getattr(facts.get("task_result"), "status", "")
        trace(name, _job_of(facts), status=str(facts.get("status") or ended))

    def refuse(sender: Any, **facts: Any) -> None:
        raise RuntimeError("a rude receiver")

    to_trace.connect(refuse, weak=False)
    to_trace.connect(receive, weak=False)


def _job_of(facts: dict[str, Any]) -> int | str:
    if "task_result" in facts:
        return str(facts["task_result"].id)
    if "ending" in facts:
        return int(facts["ending"].job_id)
    if "claim" in facts:
        return int(facts["claim"].job_id)
    return int(facts["reaped"].lease.job_id if "reaped" in facts else facts["job_id"])


if os.environ.get("PULSE_LISTEN"):
    listen()


@task(max_attempts=2)
def fails_twice() -> None:
    raise RuntimeError("no luck")


@task(takes_context=True, timeout=timedelta(seconds=1.5))
def hangs(context: Context) -> None:
    """Go on until the process ends, whatever it is told."""
    trace("begin", context.job_id)
    threading.Event().wait()
