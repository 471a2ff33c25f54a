"""What unique keys cost those who use them: one job by each rule with a key that is free or held, and a list.

Run by hand: ``PYTHONPATH=. python benchmarks/unique.py``. The contenders alternate. Each figure is the median of all
calls, in milliseconds. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import django

from benchmarks.scratch import empty, execute, scratch_database, server
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.unique.rule import Unique, UniqueKey

RULES: dict[str, Unique | None] = {
    "plain": None,
    "keep": Unique(),
    "follow": Unique(on_conflict="follow"),
    "replace": Unique(on_conflict="replace"),
    "period": Unique(per=timedelta(hours=1)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rows", type=int, default=10_000)
    options = parser.parse_args()
    times: dict[str, list[float]] = defaultdict(list)
    with scratch_database():
        for _ in range(options.rounds):
            execute("TRUNCATE pulse_django_window")
            empty()
            for place in range(options.calls):
                for name, rule in RULES.items():
                    times[f"{name}, free"].append(timed(lambda: Job.objects.enqueue(new(rule, place))))  # noqa: B023
                    if rule is not None:
                        times[f"{name}, held"].append(timed(lambda: Job.objects.enqueue(new(rule, place))))  # noqa: B023
            for name, rule in RULES.items():
                empty()
                execute("TRUNCATE pulse_django_window")
                news = [new(rule, place) for place in range(options.rows)]
                times[f"{name}, {options.rows} in a list"].append(timed(lambda: Job.objects.enqueue_many(news)))  # noqa: B023
        about = {"server": server(), "python": sys.version.split()[0], "django": django.__version__}
    print(json.dumps({name: round(statistics.median(one) * 1000, 3) for name, one in times.items()} | about, indent=2))


def new(rule: Unique | None, place: int) -> NewJob:
    unique = None if rule is None else UniqueKey.of(f"{rule.on_conflict}{place}", rule)
    return NewJob(task="app.tasks.send", args=[place, "customer@example.com"], kwargs={"lang": "de"}, unique=unique)


def timed(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


if __name__ == "__main__":
    main()
