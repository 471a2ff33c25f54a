"""Enqueues ``stamp`` jobs one at a time, as a web request would, and prints when each was committed.

Run by ``manage.py shell`` of the project that is measured; BENCH_ENQUEUE has the module of its tasks, how many jobs,
and how many seconds between two.
"""

from __future__ import annotations

import os
import random
import time
from functools import partial
from importlib import import_module
from typing import Any

from django.db import transaction

ENQUEUE = "BENCH_ENQUEUE"

# What a first job pays for is not pickup: connections, plans, imports. It is enqueued, and not counted.
WARM_UP = 3


def main() -> None:
    module, jobs, gap = os.environ[ENQUEUE].split()
    print_instants(import_module(module).stamp, int(jobs), float(gap))


def print_instants(stamp: Any, jobs: int, gap: float) -> None:
    committed: dict[int, int] = {}
    next_at = time.monotonic()
    for number in range(-WARM_UP, jobs):
        next_at = max(next_at + gap * random.uniform(0.5, 1.5), time.monotonic() - gap)
        time.sleep(max(0.0, next_at - time.monotonic()))
        with transaction.atomic():
            # Registered first, so called first: before the NOTIFY that follows a commit.
            transaction.on_commit(partial(note, committed, number))
            stamp.enqueue(number)
    for number, instant in committed.items():
        if number >= 0:
            print(number, instant)


def note(committed: dict[int, int], number: int) -> None:
    committed[number] = time.monotonic_ns()


if __name__ == "__main__":
    main()
