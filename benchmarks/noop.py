"""The tasks that the worker is measured with. They do nothing, or as little as shows when they were called."""

from __future__ import annotations

import os
import time

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
