"""What claims cost beside the jobs of a paused task: ``python benchmarks/paused_tasks.py``.

Three queues have the same jobs. In front of those of the second and the third are many of a task that is paused, in
all queues or in that queue alone. Kinds of claims alternate in each round, and each round's ratio is to the claim of
that round in the first queue. What was claimed is put back.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from benchmarks.limits import ME, WORKER, Claiming, compare
from benchmarks.scratch import execute, scratch_database, settle_down
from pulse_django.models import Job, Pause
from pulse_django.queue.set_aside import in_batches
from pulse_django.queue.words.lanes import Lane

FREE = 20_000  # jobs of each queue that can start
ALONE, BESIDE, BESIDE_HERE = "alone", "beside", "beside-here"
QUEUES = (ALONE, BESIDE, BESIDE_HERE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--paused", type=int, default=100_000, help="jobs of a paused task in front of the others")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with scratch_database("bench_paused"):
        insert("bench.paused", options.paused, BESIDE)
        insert("bench.paused_here", options.paused, BESIDE_HERE)
        for queue in QUEUES:
            insert("bench.noop", FREE, queue)
        Pause.objects.pause("bench.paused")
        Pause.objects.pause("bench.paused_here", queue=BESIDE_HERE)
        settle_down("pulse_django_job")
        for size in (100, 10):
            compare(size, kinds(size), options.rounds)
        WORKER.hang_up()
        aside = sum(len(found) for found in in_batches(Job.objects.set_aside, None))
        if aside != 2 * options.paused:
            raise SystemExit(f"{aside:,} jobs were set aside")
        settle_down("pulse_django_job")
        print(f"{aside:,} jobs are set aside, as a watchdog does:")
        for size in (100, 10):
            compare(size, kinds(size), options.rounds)
        WORKER.hang_up()


def insert(task: str, count: int, queue: str) -> None:
    execute(
        "INSERT INTO pulse_django_job (task, queue, priority, args)"
        " SELECT %s, %s, 0, jsonb_build_array(n) FROM generate_series(1, %s) AS n",
        [task, queue, count],
    )


def claim(queue: str, size: int) -> Claiming:
    return lambda: WORKER.call(WORKER.jobs.claim, ME, limit=size, lanes=[Lane(queue, 0)])


def kinds(size: int) -> dict[str, Claiming]:
    return {
        "plain": claim(ALONE, size),
        "beside its jobs": claim(BESIDE, size),
        "beside, in one queue": claim(BESIDE_HERE, size),
    }


if __name__ == "__main__":
    main()
