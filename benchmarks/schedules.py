"""How fast ticks are decided: ``python benchmarks/schedules.py``.

10,000 schedules that are due at one instant, by one watchdog and by four; and what a look costs while nothing is due.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from multiprocessing import Barrier, Process
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from django.core.management import call_command
from django.db import connection, connections

from pulse_django.models import Job, Tick
from pulse_django.schedules.tick import look
from pulse_django.schedules.ticking import tick_due


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    call_command("migrate", verbosity=0)
    try:
        create(options.schedules)
        for processes in (1, 4):
            took = [one_round(options.schedules, processes) for _ in range(options.rounds)]
            print(f"{options.schedules} due at once, {processes} at work: {spread(took)} s", flush=True)
        sql("UPDATE pulse_django_schedule SET next_at = clock_timestamp() + interval '1 hour'")
        looks = [timed(lambda: look("default")) * 1000 for _ in range(1_000)]
        print(
            f"a look while nothing is due: {statistics.median(looks):.2f} ms (p50), {sorted(looks)[990]:.2f} ms (p99)"
        )
    finally:
        clear()
        sql("DELETE FROM pulse_django_schedule RETURNING id")


def create(count: int) -> None:
    sql(
        "INSERT INTO pulse_django_schedule (name, task, args, cron, tz, next_at)"
        " SELECT 'customer ' || number, 'shop.echo', '[1]', (number %% 60) || ' 3 * * *', 'Europe/Berlin',"
        " clock_timestamp() FROM generate_series(1, %s) AS number RETURNING id",
        count,
    )
    sql("ANALYZE pulse_django_schedule")


def one_round(count: int, processes: int) -> float:
    clear()
    sql("UPDATE pulse_django_schedule SET next_at = date_trunc('second', clock_timestamp()), last_job_id = NULL")
    connections.close_all()
    ready = Barrier(processes + 1)
    working = [Process(target=work, args=(ready,)) for _ in range(processes)]
    for one in working:
        one.start()
    ready.wait()
    began = time.perf_counter()
    for one in working:
        one.join()
    took = time.perf_counter() - began
    fired = Tick.objects.filter(outcome="FIRED").count()
    if not fired == Job.objects.count() == count:
        raise SystemExit(f"{fired} ticks and {Job.objects.count()} jobs, and not {count}")
    return took


def work(ready: Any) -> None:
    look("default")
    ready.wait()
    while tick_due("default").schedules:
        pass
    connections.close_all()


def clear() -> None:
    sql("TRUNCATE pulse_django_tick, pulse_django_key")
    sql("DELETE FROM pulse_django_job")


def sql(statement: str, *params: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(statement, params)


def timed(act: Any) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} [{min(values):.2f} to {max(values):.2f}]"


if __name__ == "__main__":
    main()
