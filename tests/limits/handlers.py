"""Handlers of tasks with limits and shares, for each executor. Load them by ``PULSE["TASK_MODULES"]``."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from pulse_django import Context, Limit, RateLimited, task
from tests.worker.handlers import Nap, everywhere, trace

MODULES = {"TASK_MODULES": ["tests.worker.handlers", "tests.limits.handlers"]}
THREE = Limit("workers.three", max_running=3, max_running_per_key=2)


@everywhere(limit=THREE, limit_key=lambda customer: customer)
async def naps_as_one_of_three(context: Context, nap: Nap, customer: int) -> None:
    await nap(0.02)


@everywhere(limit=Limit("workers.api", max_running=10), max_attempts=1)
async def is_told_to_wait(context: Context, nap: Nap) -> None:
    trace("asked", context.job_id)
    if context.attempt == 1:
        raise RateLimited(timedelta(seconds=0.5), "enough")


@everywhere(limit=Limit("workers.alone", max_running=1), max_attempts=5)
async def naps_alone(context: Context, nap: Nap, seconds: float) -> None:
    trace("works", context.job_id)
    await nap(seconds if context.attempt == 1 else 0.0)


@everywhere(fair_by=lambda customer: customer)
async def shares(context: Context, nap: Nap, customer: Any) -> None:
    await nap(0.01)


LONG, SHORT = 0.5, 0.02


@task(name="shares.takes", fair_by="tenant")
def takes(tenant: str, seconds: float) -> None:
    time.sleep(seconds)


@task(name="limits.sleeps", limit=Limit("workers.many", max_running=100))
def sleeps(seconds: float) -> None:
    time.sleep(seconds)


@task(name="limits.asks_api", limit=Limit("workers.busy_api", max_running=400))
def asks_api(number: int, refused_from: int) -> None:
    if number >= refused_from:
        trace("refused", number)
        raise RateLimited(timedelta(minutes=5), "enough")


@task(name="limits.fails_now_and_then", limit=Limit("workers.failing", max_running=400), max_attempts=1)
def fails_now_and_then(number: int) -> None:
    if number % 10 == 0:
        raise ValueError(number)


@task(name="limits.does_nothing")
def does_nothing() -> None: ...


@task(name="limits.heavy", limit=Limit("workers.heavy", max_running=5))
def heavy(seconds: float) -> None:
    time.sleep(seconds)


@task(name="limits.weighs")
def weighs(seconds: float) -> tuple[float, float]:
    begun = time.monotonic()
    time.sleep(seconds)
    return begun, time.monotonic()
