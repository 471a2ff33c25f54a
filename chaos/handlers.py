"""What the jobs of a chaos run do. Each execution has an id of its own and writes down that it began and ended.

The log is the handlers' own: one line each, appended at once, with the clock that all processes of a machine share.
The result of a job is the id of the execution that returned it, so the stored result tells which one was believed.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import time
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from django.db import connections

from pulse_django import Context, DeadJob, Unique, task
from tests import sabotage

LONGEST, PERIOD = timedelta(seconds=2), timedelta(seconds=1)  # the judge has them too
LOG = "CHAOS_LOG"
ORDER = "CHAOS_ORDER"  # the file that names the harm a process of a worker does to itself at SIGUSR1


def note(what: str, context: Context, execution: str, *, listens: bool, wish: int | None = None) -> None:
    line = {
        "wish": wish,
        "what": what,
        "execution": execution,
        "job": context.job_id,
        "attempt": context.attempt,
        "token": context.token,
        "holder": context.run.claim.lease.holder,
        "listens": listens,
        "at": time.monotonic(),
    }
    file = os.open(os.environ[LOG], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, (json.dumps(line) + "\n").encode())
    finally:
        os.close(file)


def _harm_oneself(*_: object) -> None:
    what = Path(os.environ[ORDER]).read_text()
    if what == "leak descriptors":
        sabotage.leak_descriptors()
    elif what == "raise":
        sabotage.raise_in_receivers_and_log()
    else:
        with suppress(AttributeError):  # a thread that was never started
            sabotage.end_thread(what)


if ORDER in os.environ:
    signal.signal(signal.SIGUSR1, _harm_oneself)


class Executed:
    """Notes the beginning and the end of one execution, whatever becomes of it."""

    def __init__(self, context: Context, *, listens: bool = False, wish: int | None = None) -> None:
        self.context, self.id, self.listens, self.wish = context, secrets.token_hex(8), listens, wish

    def __enter__(self) -> str:
        note("begin", self.context, self.id, listens=self.listens, wish=self.wish)
        return self.id

    def __exit__(self, kind: Any, *_: Any) -> None:
        note("end" if kind is None else f"raised {kind.__name__}", self.context, self.id, listens=self.listens)


@task(name="chaos.quick", takes_context=True)
def quick(context: Context) -> str:
    with Executed(context) as execution:
        return execution


@task(name="chaos.slow", takes_context=True)
def slow(context: Context, seconds: float) -> str:
    """Longer than a lease, and deaf."""
    with Executed(context) as execution:
        time.sleep(seconds)
        return execution


@task(name="chaos.steps", takes_context=True)
def steps(context: Context, total: int, pause: float) -> str:
    """Saves how far it is, and listens: it stops soon after its lease has ended."""
    with Executed(context, listens=True) as execution:
        done = context.checkpoint["done"] if context.checkpoint else 0
        while done < total:
            context.check()
            time.sleep(pause)
            done += 1
            context.progress(done, total)
        return execution


@task(name="chaos.note_death", takes_context=True)
def note_death(context: Context, dead: DeadJob) -> str:
    """The hook of each job that dies."""
    with Executed(context) as execution:
        return execution


@task(name="chaos.once", takes_context=True, at_most_once=True, on_dead=note_death)
def once(context: Context, total: int) -> str:
    """Listens, so that it is handed back as well: it stops when its worker has lost touch."""
    with Executed(context, listens=True) as execution:
        for _ in range(total):
            context.check()
            time.sleep(0.2)
        return execution


@task(name="chaos.failing", takes_context=True, max_attempts=3, on_dead=note_death)
def failing(context: Context, fails: int) -> str:
    with Executed(context) as execution:
        if context.attempt <= fails:
            raise ValueError(f"attempt {context.attempt}")
        return execution


@task(name="chaos.refused_hook")
def refused_hook(dead: DeadJob) -> None:
    """Never runs: the server refuses its row."""


@task(name="chaos.slow_hook")
def slow_hook(dead: DeadJob) -> None:
    """Never runs: its row takes longer than a statement may."""


@task(name="chaos.dies_with_refused_hook", max_attempts=1, on_dead=refused_hook)
def dies_with_refused_hook() -> None:
    raise ValueError("dies")


@task(name="chaos.dies_with_slow_hook", max_attempts=1, on_dead=slow_hook)
def dies_with_slow_hook() -> None:
    raise ValueError("dies")


@task(name="chaos.kept", takes_context=True, unique=Unique(by=("key",)))
def kept(context: Context, key: str, wish: int) -> str:
    """One for each key that is not over."""
    with Executed(context) as execution:
        time.sleep(0.1)
        return execution


@task(name="chaos.gathered", takes_context=True, unique=Unique(by=("key",), on_conflict="debounce", max_delay=LONGEST))
def gathered(context: Context, key: str, wish: int) -> str:
    """Does what the last caller wished."""
    with Executed(context, wish=wish) as execution:
        return execution


@task(name="chaos.follower", takes_context=True, unique=Unique(by=("key",), on_conflict="follow"))
def follower(context: Context, key: str) -> str:
    """Looks what was wished last."""
    with Executed(context, wish=last_wish(context, "chaos.follower", key)) as execution:
        return execution


@task(name="chaos.periodic", takes_context=True, unique=Unique(by=("key",), per=PERIOD))
def periodic(context: Context, key: str) -> str:
    with Executed(context) as execution:
        return execution


def last_wish(context: Context, name: str, key: str) -> int | None:
    with connections[context.run.alias or "default"].cursor() as cursor:
        cursor.execute("SELECT max(wish) FROM chaos_wish WHERE task = %s AND key = %s", [name, key])
        [last] = cursor.fetchone()
    return None if last is None else int(last)


@task(name="chaos.poison", takes_context=True, isolation="process", max_lost_workers=2, on_dead=note_death)
def poison(context: Context) -> None:
    with Executed(context):
        os.kill(os.getpid(), signal.SIGKILL)
