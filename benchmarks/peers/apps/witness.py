"""What handlers leave behind, whoever calls them: how often they were called, and when. Knows nothing of any queue.

A no-op has to stay one: ``call`` only counts in memory that is shared with a file, one file for each process.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import struct
import threading
import time
from pathlib import Path

# The environment's names for a folder and two files.
CALLS, STAMPS, BEGUN = "BENCH_CALLS", "BENCH_STAMPS", "BENCH_BEGUN"
FOREVER = 3_600.0
RECORD = struct.Struct("=qqq")  # calls, and the instants of the first and the last
_guard = threading.Lock()
_count, _first, _pid = 0, 0, 0
_memory: mmap.mmap


def call() -> None:
    """Count a call of a handler that does nothing."""
    global _count, _first
    with _guard:
        now = time.monotonic_ns()
        if _pid != os.getpid():  # a process of its own, perhaps a fork
            _open(now)
        _count += 1
        RECORD.pack_into(_memory, 0, _count, _first, now)


def _open(now: int) -> None:
    global _count, _first, _pid, _memory
    _count, _first, _pid = 0, now, os.getpid()
    path = Path(os.environ[CALLS]) / f"{_pid}-{now}"
    path.write_bytes(bytes(RECORD.size))
    with path.open("r+b") as file:
        _memory = mmap.mmap(file.fileno(), RECORD.size)


def stamp(number: int) -> None:
    """Note when the handler of this job was called."""
    _append(os.environ[STAMPS], f"{number} {time.monotonic_ns()}\n")


def hold() -> None:
    """Note that a job has begun, and do not end: somebody kills its worker."""
    _begin()
    time.sleep(FOREVER)


async def hold_async() -> None:
    """``hold`` on an event loop."""
    _begin()
    await asyncio.sleep(FOREVER)


def _begin() -> None:
    _append(os.environ[BEGUN], f"{os.getpid()} {time.monotonic_ns()}\n")


def _append(path: str, line: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)
