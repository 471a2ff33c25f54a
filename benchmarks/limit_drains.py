"""How fast a worker drains jobs with limits and shares, beside plain ones: ``python -m benchmarks.limit_drains``.

The worker is that of a plain project: ``startproject`` and the README's lines. Kinds of jobs alternate, another one
begins each round, and each round's ratio is to the plain drain of that round. No limit is ever reached: what is
measured is the price of keeping it. The number of slots is that of the plain worker, and a large one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from benchmarks.drains import checked_rate
from benchmarks.processes import PlainSurroundings, run_burst
from benchmarks.scratch import fill, scratch_database
from pulse_django.limits.rules import Limit
from pulse_django.models import Limiter
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.lane_keys import lane_key

KEYS = 100
MANY = 1_000_000
LIMITS = {"limit per key": Limit("key", max_running_per_key=MANY), "limit of a name": Limit("name", max_running=MANY)}
KINDS = ("plain", "fair", *LIMITS)
SLOTS = ("8", "200")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=15_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with scratch_database("bench_limits"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        around = PlainSurroundings.make(Path(folder))
        for slots in SLOTS:
            compare(around, slots, options.jobs, options.rounds)


def compare(around: PlainSurroundings, slots: str, jobs: int, rounds: int) -> None:
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for number in range(rounds):
        start = number % len(KINDS)
        for kind in KINDS[start:] + KINDS[:start]:
            rates[kind].append(drain(around, kind, slots, jobs))
    for kind, found in rates.items():
        ratios = [one / plain for one, plain in zip(found, rates["plain"], strict=True)]
        print(
            f"{slots:>3} slots, {kind:16} {statistics.median(found):8,.0f} jobs/s, {statistics.median(ratios):.2f} of "
            f"plain ({min(ratios):.2f} to {max(ratios):.2f})",
            flush=True,
        )


def drain(around: PlainSurroundings, kind: str, slots: str, jobs: int) -> float:
    task = around.key("nothing")
    fill([NewJob(task=task, lane_key=key_of(kind, number % KEYS)) for number in range(jobs)])
    Limiter.objects.declare_new("bench", {limit.name: limit.numbers() for limit in LIMITS.values()})
    run_burst(around, 1, "--concurrency", slots)
    return checked_rate(jobs)


def key_of(kind: str, key: int) -> str:
    if kind == "plain":
        return ""
    return lane_key(LIMITS[kind].name if kind in LIMITS else "", str(key))


if __name__ == "__main__":
    main()
