"""Enqueues ``stamp`` jobs one at a time, as a web request would, and prints when each was committed.

python -m benchmarks.enqueuer JOBS SECONDS_BETWEEN
"""

from __future__ import annotations

import random
import sys
import time
from functools import partial

from django.db import transaction

from benchmarks.noop import stamp

# What a first job pays for is not pickup: connections, plans, imports. It is enqueued, and not counted.
WARM_UP = 3


def main() -> None:
    jobs, gap = int(sys.argv[1]), float(sys.argv[2])
    committed: dict[int, int] = {}
    for number in range(-WARM_UP, jobs):
        time.sleep(gap * random.uniform(0.5, 1.5))
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
