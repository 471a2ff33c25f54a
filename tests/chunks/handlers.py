"""Handlers of tasks with chunks. Load them by ``PULSE["TASK_MODULES"]``."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from datetime import timedelta

from pulse_django import Chunk, Limit, task
from tests.worker.handlers import trace

MODULES = {"TASK_MODULES": ["tests.worker.handlers", "tests.chunks.handlers"]}


def note(chunk: Chunk) -> None:
    """Write down a call, in the name of its first job."""
    trace("called", chunk[0].job_id, jobs=[job.job_id for job in chunk])


def until_released(chunk: Chunk) -> None:
    """Wait until the test has made the file that the first job names."""
    deadline = time.monotonic() + 20
    while not os.path.exists(chunk[0].kwargs["file"]) and time.monotonic() < deadline:
        time.sleep(0.01)


@task(name="chunk.hundreds", chunk=100)
def hundreds(chunk: Chunk) -> None:
    note(chunk)


@task(name="chunk.patient", chunk=100, chunk_wait=timedelta(seconds=60))
def patient(chunk: Chunk) -> None:
    note(chunk)


@task(name="chunk.fives", chunk=5, chunk_wait=timedelta(seconds=30))
def fives(chunk: Chunk) -> None:
    note(chunk)


def fail_those_stopped(chunk: Chunk) -> None:
    """Let each job fail that was asked to stop."""
    for job in chunk:
        try:
            job.context.check()
        except BaseException as error:
            trace("stopped", job.job_id, by=type(error).__name__)
            job.fail(error)


@task(name="chunk.waits", chunk=50, chunk_wait=timedelta(seconds=30))
def waits(chunk: Chunk) -> None:
    note(chunk)
    until_released(chunk)
    fail_those_stopped(chunk)
    trace("left", chunk[0].job_id)


@task(name="chunk.half", chunk=6, chunk_wait=timedelta(seconds=30), max_attempts=3)
def half(chunk: Chunk) -> None:
    """Decide half of the jobs, and stay in the first call until it is killed."""
    note(chunk)
    if any(job.attempt > 1 for job in chunk):
        return
    for job in chunk[:3]:
        job.succeed(job.kwargs["n"])
    trace("decided", chunk[0].job_id)
    time.sleep(60)


@task(name="chunk.slow", chunk=4, chunk_wait=timedelta(seconds=0.4), timeout=timedelta(seconds=1), max_attempts=1)
def slow(chunk: Chunk) -> None:
    note(chunk)
    chunk[0].succeed()
    until_released(chunk)


@task(name="chunk.slow_async", chunk=4, chunk_wait=timedelta(seconds=30), timeout=timedelta(seconds=31), max_attempts=1)
async def slow_async(chunk: Chunk) -> None:
    note(chunk)
    chunk[0].succeed()
    await asyncio.sleep(60)


@task(name="chunk.waits_async", chunk=3, chunk_wait=timedelta(seconds=30))
async def waits_async(chunk: Chunk) -> None:
    note(chunk)
    while not os.path.exists(chunk[0].kwargs["file"]):
        await asyncio.sleep(0.01)
    fail_those_stopped(chunk)


@task(name="chunk.limited", chunk=10, limit=Limit("chunk.five", max_running=5))
def limited(chunk: Chunk) -> None:
    note(chunk)
    time.sleep(0.02)


@task(name="chunk.kills", chunk=4, chunk_wait=timedelta(seconds=30), max_lost_workers=3)
def kills(chunk: Chunk) -> None:
    note(chunk)
    if any(job.kwargs["kills"] for job in chunk):
        os.kill(os.getpid(), signal.SIGKILL)
