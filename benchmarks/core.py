"""What the verbs cost: claim + settle against pgbench running the same statements, bulk enqueue against bulk_create.

Run by hand on a quiet machine: ``make bench``. The contenders alternate, because machines drift; every figure is the
median over the rounds, every ratio the median of the rounds' own ratios. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

from benchmarks.floor import BATCH, drain_by_pgbench
from benchmarks.scratch import empty, fill, scratch_database, server
from pulse_django.models import Job
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report


def main() -> None:
    options = parse_arguments()
    with scratch_database():
        rounds = [measure(options) for _ in range(options.rounds)]
        about = {
            "rounds": options.rounds,
            "server": server(),
            "python": sys.version.split()[0],
            "django": django.__version__,
        }
    medians = {key: statistics.median(found[key] for found in rounds) for key in rounds[0]}
    whole = {key: round(value) for key, value in medians.items() if key.endswith("_per_s")}
    ratios = {key: round(value, 3) for key, value in medians.items() if not key.endswith("_per_s")}
    spread = {
        key: [round(min(values), 3), round(max(values), 3)]
        for key in rounds[0]
        for values in [[found[key] for found in rounds]]
    }
    print(json.dumps(whole | ratios | about | {"spread": spread}, indent=2))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per drain")
    parser.add_argument("--rows", type=int, default=10_000, help="rows per bulk enqueue")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def measure(options: argparse.Namespace) -> dict[str, float]:
    verbs = options.jobs / timed_drain(options.jobs, drain_by_verbs)
    floor = options.jobs / timed_drain(options.jobs, drain_by_pgbench(NewJob(**work(0))))
    enqueue = options.rows / timed_enqueue(lambda: Job.objects.enqueue_many(new_jobs(options.rows)))
    create = options.rows / timed_enqueue(lambda: Job.objects.bulk_create(models(options.rows), batch_size=2_000))
    return {
        "claim_settle_per_s": verbs,
        "floor_per_s": floor,
        "claim_settle_vs_floor": verbs / floor,
        "enqueue_many_per_s": enqueue,
        "bulk_create_per_s": create,
        "enqueue_many_vs_bulk_create": enqueue / create,
    }


def timed_drain(jobs: int, drain: Callable[[int], None]) -> float:
    fill(new_jobs(jobs))
    started = time.perf_counter()
    drain(jobs)
    seconds = time.perf_counter() - started
    if left := Job.objects.exclude(status="COMPLETED").count():
        raise SystemExit(f"{left} of {jobs} jobs were not completed: the figure would be a lie")
    return seconds


def drain_by_verbs(jobs: int) -> None:
    worker = Identity("bench")
    lanes = Job.objects.lanes()
    while claims := Job.objects.claim(worker, limit=BATCH, lanes=lanes):
        done = [Report(claim.lease, Succeeded(), Complete()) for claim in claims]
        if len(Job.objects.settle(done).accepted) != len(done):
            raise SystemExit("a settle was refused")


def timed_enqueue(enqueue: Callable[[], Any]) -> float:
    empty()
    started = time.perf_counter()
    enqueue()
    return time.perf_counter() - started


def new_jobs(count: int) -> list[NewJob]:
    return [NewJob(**work(number)) for number in range(count)]


def models(count: int) -> list[Job]:
    return [Job(**work(number)) for number in range(count)]


def work(number: int) -> dict[str, Any]:
    return {
        "task": "app.tasks.send_invoice",
        "args": [number, "customer@example.com"],
        "kwargs": {"lang": "de"},
    }


if __name__ == "__main__":
    main()
