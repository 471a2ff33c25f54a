"""What batches and workflows cost a worker: ``python -m benchmarks.fan_in``.

The worker is that of a plain project: ``startproject`` and the README's lines. It drains no-ops that are in no batch,
that are members of one batch whose callback waits for all of them, and that one job each waits for. Kinds alternate,
another one begins each round, and each round's ratio is to the plain drain of that round. Then an idle worker gets
pairs of jobs, one of which needs the other: how long after the end of the first does the second start?
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from benchmarks.drains import checked_rate
from benchmarks.processes import PlainSurroundings, run_burst, working
from benchmarks.scratch import execute, scratch_database, settle_down
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.workflows.batch_verbs import open_batch, seal_batch
from pulse_django.workflows.needs import add_needs
from pulse_django.workflows.rules import Need, Place

KINDS = ("plain", "batch", "pairs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=8)
    options = parser.parse_args()
    with scratch_database("bench_fan_in"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        around = PlainSurroundings.make(Path(folder))
        compare(around, options.workers, options.jobs, options.rounds)
        print(latency(around, 100))


def compare(around: PlainSurroundings, workers: int, jobs: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        start = number % len(KINDS)
        for kind in KINDS[start:] + KINDS[:start]:
            rates[kind].append(drain(around, kind, workers, jobs))
    for kind, found in rates.items():
        ratios = [one / plain for one, plain in zip(found, rates["plain"], strict=True)]
        print(
            f"{workers} workers, {kind:6} {statistics.median(found):8,.0f} jobs/s, {statistics.median(ratios):.2f} of "
            f"plain ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def drain(around: PlainSurroundings, kind: str, workers: int, jobs: int) -> float:
    """Return how many jobs a second end, of those that wait and of those that others wait for."""
    task = around.key("nothing")
    empty()
    if kind == "plain":
        Job.objects.enqueue_many([NewJob(task=task)] * jobs)
    elif kind == "batch":
        batch = open_batch(Job.objects, "bench")
        Job.objects.enqueue_many([NewJob(task=task, place=Place(batch))] * (jobs - 1))
        [callback] = Job.objects.enqueue_many([NewJob(task=task, place=Place(waits=True))])
        add_needs(Job.objects, [(callback, Need(batch_id=batch))])
        seal_batch(Job.objects, batch)
    else:
        first = Job.objects.enqueue_many([NewJob(task=task, place=Place(awaited=True))] * (jobs // 2))
        then = Job.objects.enqueue_many([NewJob(task=task, place=Place(waits=True))] * (jobs // 2))
        needs = [(job_id, Need(job_id=need)) for job_id, need in zip(then, first, strict=True)]
        add_needs(Job.objects, needs, new_jobs=first)
    settle_down("pulse_django_job", "pulse_django_dependency")
    run_burst(around, workers)
    return checked_rate(jobs)


def empty() -> None:
    for table in ("job", "attempt", "batch", "dependency", "unresolved"):
        execute(f"TRUNCATE pulse_django_{table}")


def latency(around: PlainSurroundings, pairs: int) -> str:
    """Return how long a job waits on an idle worker after the end of the one that it needs."""
    empty()
    task = around.key("nothing")
    with working(around, around.log("latency"), around.environment(), listens=True):
        for _ in range(pairs):
            [first] = Job.objects.enqueue_many([NewJob(task=task, place=Place(awaited=True))])
            [then] = Job.objects.enqueue_many([NewJob(task=task, place=Place(waits=True))])
            add_needs(Job.objects, [(then, Need(job_id=first))])
            while not Job.objects.filter(pk=then, finished_at__isnull=False).exists():
                time.sleep(0.005)
    rows = Job.objects.order_by("id").values_list("started_at", "finished_at")
    ends = list(rows)
    waits = sorted(
        (then[0] - first[1]).total_seconds() * 1000 for first, then in zip(ends[::2], ends[1::2], strict=True)
    )
    return (
        f"a job starts {statistics.median(waits):.1f} ms after its last need (p95 {waits[len(waits) * 95 // 100]:.1f})"
    )


if __name__ == "__main__":
    main()
