"""The tasks that the worker is measured with. Most do nothing, or as little as shows when they were called."""

from __future__ import annotations

import asyncio
import os
import time

from django.apps import apps

from pulse_django import signals, task

STAMPS = "BENCH_STAMPS"  # the environment's name for the file that stamp() appends to
RECEIVERS = "BENCH_RECEIVERS"  # whether somebody listens to the signals of every job


@task
def nothing() -> None:
    pass


@task
async def nothing_async() -> None:
    pass


@task
def insert(number: int = 0) -> None:
    """Write one row. Only the plain project has its table."""
    apps.get_model("shop", "Entry").objects.create(number=number)


@task
async def insert_async(number: int = 0) -> None:
    await apps.get_model("shop", "Entry").objects.acreate(number=number)


@task
def sleep() -> None:
    time.sleep(0.01)


@task
async def sleep_async() -> None:
    await asyncio.sleep(0.01)


@task
def compute() -> None:
    """Compute for a millisecond of this thread's own time: that of others does not count."""
    until = time.thread_time() + 0.001
    while time.thread_time() < until:
        pass


@task
def stamp(number: int) -> None:
    """Note when this was called, by the clock that all processes of a machine share."""
    called = time.monotonic_ns()
    file = os.open(os.environ[STAMPS], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{number} {called}\n".encode())
    finally:
        os.close(file)


def _listen(**_: object) -> None:
    pass


if os.environ.get(RECEIVERS):
    signals.job_started.connect(_listen)
    signals.job_finished.connect(_listen)
