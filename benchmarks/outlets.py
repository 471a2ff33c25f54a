"""What the outlets of the vital signs cost: a backlog is drained with none of them and with all, in turns.

Run by hand on a quiet machine: ``python benchmarks/outlets.py``. Rates are jobs a second by the server's clock, from
the first claim to the last settle; every ratio is one round's own, and the median of the rounds is printed. Meanwhile
the whole fleet is read once a second as Prometheus reads it, and the worker's own port as well.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django
from django.db import connections

from benchmarks.drains import checked_rate
from benchmarks.noop import nothing
from benchmarks.processes import Surroundings, run_burst
from benchmarks.scratch import fill, scratch_database
from benchmarks.spans import SHARE
from pulse_django.metrics.exporters import exposition
from pulse_django.metrics.exporters.readings import read
from pulse_django.metrics.vital_signs import ALL
from pulse_django.queue.words.job_options import NewJob
from pulse_django.run.registry import key_of

PORT = 19_187
ALERTS = {"queue-overdue": 600, "dead-letters": 10, "leases-expired": 10}
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way of running a worker."""

    name: str
    pulse: dict[str, Any] = field(default_factory=dict)
    is_scraped: bool = False
    sampled: str = "1"
    trace: str | None = None


TRACED = {"OPENTELEMETRY": True, "TASK_MODULES": ["benchmarks.noop", "benchmarks.spans"]}
WAYS = (
    Way(name="none"),
    Way(name="metrics_and_alerts", pulse={"ALERTS": ALERTS}, is_scraped=True),
    Way(name="all_one_trace_in_100", pulse={"ALERTS": ALERTS} | TRACED, is_scraped=True, sampled="0.01"),
    Way(name="all_every_trace", pulse={"ALERTS": ALERTS} | TRACED, is_scraped=True, trace=TRACE),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=40_000, help="jobs per drain")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with scratch_database("bench_outlets"), tempfile.TemporaryDirectory(prefix="pulse-bench-") as folder:
        rounds = [
            drain_all(Surroundings(folder=Path(folder)), options.jobs, number) for number in range(options.rounds)
        ]
    figures: dict[str, Any] = {"jobs": options.jobs, "rounds": options.rounds, "django": django.get_version()}
    for way in WAYS:
        rates = [one[way.name] for one in rounds]
        figures[way.name] = {
            "jobs_per_s": round(statistics.median(rates)),
            "range": [round(min(rates)), round(max(rates))],
        }
        if way.name != "none":
            lost = [1 - one[way.name] / one["none"] for one in rounds]
            figures[way.name] |= {"slower_by": round(statistics.median(lost), 4)}
            figures[way.name] |= {"slower_by_range": [round(min(lost), 4), round(max(lost), 4)]}
    print(json.dumps(figures, indent=2))


def drain_all(around: Surroundings, jobs: int, number: int) -> dict[str, float]:
    """Let all ways take turns; another begins each round."""
    start = number % len(WAYS)
    rates = {}
    for way in WAYS[start:] + WAYS[:start]:
        rates[way.name] = drain(around, way, jobs)
        print(f"round {number + 1}: {way.name} {rates[way.name]:,.0f} jobs/s", file=sys.stderr, flush=True)
    return rates


def drain(around: Surroundings, way: Way, jobs: int) -> float:
    fill([NewJob(task=key_of(nothing), trace=way.trace)] * jobs)
    os.environ[SHARE] = way.sampled
    flags = ("--metrics-port", str(PORT)) if way.is_scraped else ()
    with scraped(scrape) if way.is_scraped else nullcontext():
        run_burst(around, 1, *flags, pulse=way.pulse)
    return checked_rate(jobs)


def scrape() -> None:
    """As Prometheus would: the fleet from a process of the project, the worker at its port."""
    exposition.text(ALL, read("default"))
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=1) as answer:
        answer.read()


@contextmanager
def scraped(once: Callable[[], None]) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        try:
            while not over.wait(1.0):
                once()
        finally:
            connections.close_all()  # this thread's

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join(10)


if __name__ == "__main__":
    main()
