"""Handlers for the tests of what a worker survives."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from datetime import timedelta
from typing import Any

from asgiref.sync import sync_to_async
from django.db import connection

from pulse_django import task
from pulse_django.exceptions import LeaseLost
from pulse_django.models import Job
from tests.worker.handlers import trace


@task(takes_context=True, isolation="process", max_attempts=5)
def holds_its_own_interpreter(context: Any, letters: int) -> None:
    trace("begin", context.job_id)
    re.match(r"(a+)+$", "a" * letters + "b")
    trace("end", context.job_id)


@task(takes_context=True, progress_timeout=timedelta(seconds=1.5), max_attempts=5)
def is_busy_telling(context: Any, seconds: float) -> int:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        context.progress(1)
        time.sleep(0.1)
    return int(context.attempt)


@task
async def reads_slowly(rounds: int) -> int:
    """Keep one server-side cursor open while neighbours come and go."""
    found = 0
    async for _ in Job.objects.order_by("id")[:rounds].aiterator(chunk_size=2):
        found += 1
        await asyncio.sleep(0.05)
    return found


@task
async def asks_quickly() -> int:
    def ask() -> int:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
            return int(cursor.fetchone()[0])

    return await sync_to_async(ask)()


@task(takes_context=True)
def completes_itself_and_goes_on(context: Any, seconds: float) -> None:
    with context.atomic() as completion:
        completion.result = "done"
    time.sleep(seconds)
    trace("end", context.job_id)


@task
def loses_its_lease_by_itself() -> None:
    """Raise what only Pulse should."""
    raise LeaseLost("says who?")


@task(takes_context=True)
def checks(context: Any) -> None:
    context.check()


@task
async def is_cancelled_while_it_cleans_up() -> None:
    raise asyncio.CancelledError


released = threading.Event()
threads_at_work: list[str] = []


@task(takes_context=True)
async def leaves_a_thread_at_work(context: Any) -> None:
    """Be cancelled while a thread of it goes on."""
    await sync_to_async(_works)()


def _works() -> None:
    threads_at_work.append("begun")
    released.wait(20)
    threads_at_work.append("ended")
