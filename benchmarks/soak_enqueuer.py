"""Enqueues the mix of a soak at a steady rate until SIGTERM, a batch every tenth of a second.

python -m benchmarks.soak_enqueuer JOBS_PER_SECOND

It does not wait for the worker: what it is late with it makes up for. Prints at its end what it did.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from benchmarks.soak_tasks import kind_of
from pulse_django import enqueue_many

EVERY = 0.1
LARGEST = 5_000  # jobs in a batch, however late it is


def main() -> None:
    rate = float(sys.argv[1])
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    print(json.dumps(enqueue_steadily(rate, stopping)))


def enqueue_steadily(rate: float, stopping: threading.Event) -> dict[str, float]:
    done, latest, began = 0, 0.0, time.monotonic()
    while not stopping.wait(max(0.0, EVERY - (time.monotonic() - began) % EVERY)):
        due = int((time.monotonic() - began) * rate)
        latest = max(latest, (due - done) / rate - EVERY)
        enqueue(done, min(due, done + LARGEST))
        done = min(due, done + LARGEST)
    return {"enqueued": done, "seconds": round(time.monotonic() - began, 1), "latest_s": round(latest, 3)}


def enqueue(start: int, end: int) -> None:
    for task, numbers in of_one_kind(start, end):
        enqueue_many(task, [()] * numbers)


def of_one_kind(start: int, end: int) -> Iterator[tuple[Any, int]]:
    """Return each task with the number of its jobs among these."""
    numbers = sorted(range(start, end), key=lambda number: kind_of(number).name)
    for _, group in groupby(numbers, key=lambda number: kind_of(number).name):
        members = list(group)
        yield kind_of(members[0]), len(members)


if __name__ == "__main__":
    main()
