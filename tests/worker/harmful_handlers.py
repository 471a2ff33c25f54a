"""Handlers and receivers that harm the process they run in. Load them by ``PULSE["TASK_MODULES"]``.

``PULSE_HARM`` names what receivers and the log do; see ``harm()``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from typing import Any

from django.conf import settings
from django.db import connections

from pulse_django import signals, task
from tests.sabotage import Killed, RaisingHandler, end_thread, leak_descriptors
from tests.worker.handlers import everywhere, trace


@task(takes_context=True)
async def exits_in_a_gathered_coroutine(context: Any, kind: str) -> None:
    async def exits() -> None:
        await asyncio.sleep(0)
        raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[kind]("no")

    trace("begin", context.job_id)
    await asyncio.gather(exits(), asyncio.sleep(0.05))


@task(takes_context=True)
async def leaves_a_task_that_exits(context: Any) -> str:
    async def exits() -> None:
        await asyncio.sleep(0)
        sys.exit("no")

    context_task = asyncio.get_running_loop().create_task(exits())
    await asyncio.sleep(0.05)
    return "done" if context_task.done() else "early"


@task(takes_context=True, max_attempts=5)
def kills_a_thread(context: Any, name: str) -> None:
    """End the thread of that name in this process, once, and wait to be recovered."""
    trace("begin", context.job_id)
    if context.attempt == 1:
        end_thread(name)
        time.sleep(600 if name != "handler" else 0)


@task(takes_context=True, max_attempts=5)
def naps_once(context: Any, seconds: float) -> None:
    """Nap in the first attempt only."""
    trace("begin", context.job_id)
    if context.attempt == 1:
        time.sleep(seconds)


@task(takes_context=True, max_attempts=5)
async def naps_once_on_the_loop(context: Any, seconds: float) -> None:
    trace("begin", context.job_id)
    if context.attempt == 1:
        await asyncio.sleep(seconds)


@task(takes_context=True)
def leaks_descriptors(context: Any) -> str:
    """Use up all that this process may open, and cut its connections, so that each has to be opened anew."""
    trace("begin", context.job_id)
    leak_descriptors()
    return "leaked"


@task(takes_context=True)
def naps_without_a_trace_of_its_end(context: Any, seconds: float) -> None:
    """Need no descriptor once it naps."""
    trace("begin", context.job_id)
    time.sleep(seconds)


@task(takes_context=True)
def changes_the_settings(context: Any) -> str:
    trace("begin", context.job_id)
    settings.DATABASES["default"]["NAME"] = connections.settings["default"]["NAME"] = "nonexistent"
    for wrapper in connections.all():
        wrapper.settings_dict["NAME"] = "nonexistent"
    return "changed"


@task(takes_context=True)
def closes_stderr(context: Any) -> None:
    trace("begin", context.job_id)
    sys.stderr.close()


@everywhere(max_attempts=3)
async def forks_and_returns(context: Any, nap: Any) -> str:
    if os.fork() == 0:
        return "the child's"
    trace("ran", context.job_id)
    await nap(0.3)
    return "the parent's"


@everywhere(max_attempts=3)
async def forks_and_raises(context: Any, nap: Any) -> str:
    if os.fork() == 0:
        raise ValueError("the child's")
    trace("ran", context.job_id)
    await nap(0.3)
    return "the parent's"


@everywhere(max_attempts=3)
async def forks_and_naps(context: Any, nap: Any) -> str:
    parent = os.getpid()
    os.fork()
    await nap(0.3)
    trace("woke" if os.getpid() == parent else "copy woke", context.job_id)
    return "the parent's" if os.getpid() == parent else "the child's"


class HangingHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(600)


def _exits(**_: Any) -> None:
    raise SystemExit("a receiver exits")


def _kills_the_threads_of_the_keeper(**_: Any) -> None:
    """Each of them once, at its next turn."""
    over = next(thread for thread in threading.enumerate() if thread.name == "heartbeat")._args[0].over  # type: ignore[attr-defined]
    doomed = {"heartbeat", "recovery", "minutes", "watchdog"}
    is_over = over.is_set

    def is_set() -> bool:
        name = threading.current_thread().name
        if name in doomed:
            doomed.discard(name)
            raise Killed
        return is_over()

    over.is_set = is_set


def _exits_with_our_own(**_: Any) -> None:
    raise signals_own


def _heard(signal: Any, **facts: Any) -> None:
    name = next(name for name, value in vars(signals).items() if value is signal)
    of = facts.get("claim") or facts.get("ending")
    job = of.job_id if of is not None else facts.get("job_id") or facts["reaped"].lease.job_id
    trace(f"heard {name}", job)


def harm(what: str) -> None:
    """Connect receivers that raise BaseExceptions, before one that does not; or add a log handler that harms."""
    if what == "receivers":
        for name in ("job_started", "job_finished", "job_failed", "job_dead_lettered", "job_reaped"):
            signal = getattr(signals, name)
            for receiver in (_exits, _exits_with_our_own, _heard):
                signal.connect(receiver, weak=False)
    elif what == "keeper threads":
        signals.job_reaped.connect(_kills_the_threads_of_the_keeper)
    elif what == "raising log":
        logging.getLogger().addHandler(RaisingHandler())
        logging.getLogger("django.tasks").addHandler(RaisingHandler())
    elif what == "hanging log":
        logging.getLogger("pulse_django").addHandler(HangingHandler(logging.WARNING))


def _own() -> BaseException:
    from pulse_django.exceptions import Discard

    return Discard("a receiver discards")


signals_own = _own()
harm(os.environ.get("PULSE_HARM", ""))
