"""How this project's claim grows: with finished rows, with the backlog, with queues, and while a snapshot is held.

A claim is timed as the worker makes it, one statement and its answer; each point is the median of many. Peers are not
measured: their claims are not to be had without their workers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from benchmarks.scratch import database_url, empty, execute, settle_down
from pulse_django.models import Job
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.verb_results import Report

Figures = dict[str, float]
FINISHED = (10_000, 100_000, 1_000_000, 5_000_000)
BACKLOG = (1_000, 10_000, 100_000, 1_000_000)
QUEUES = (1, 10, 100)
CLAIMABLE = 10_000  # beside finished rows, and in all queues together
AT_ONCE = 100
CHURNED = 20_000
SAMPLES = 30
_JOBS = """
INSERT INTO pulse_django_job (task, queue) SELECT 'bench.nothing', 'queue-' || n % %s FROM generate_series(1, %s) AS n
"""
_DONE = """
INSERT INTO pulse_django_job (era, task, status, attempts, created_at, started_at, finished_at)
SELECT
    to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int, 'bench.nothing', 'COMPLETED', 1,
    clock_timestamp() - interval '2 hours', clock_timestamp() - interval '1 hour',
    clock_timestamp() - interval '1 hour'
FROM generate_series(1, %s)
"""
Keep = Callable[[str, Figures], None]


def grow(keep: Keep, most: int) -> None:
    """Measure every point up to so many rows, and hand each over as soon as it is known."""
    empty()
    finished = 0
    for count in FINISHED:
        if count <= most:
            execute("DELETE FROM pulse_django_job WHERE status <> 'COMPLETED'")
            execute(_DONE.replace("n % %s", "n"), [count - finished])
            finished = count
            add_jobs(CLAIMABLE)
            keep(f"finished rows: {count:,}", claims())
    for count in BACKLOG:
        if count <= most:
            empty()
            add_jobs(count)
            keep(f"backlog: {count:,}", claims(max(1, min(SAMPLES, count // (2 * AT_ONCE)))))
    for count in QUEUES:
        empty()
        add_jobs(CLAIMABLE, queues=count)
        keep(f"queues: {count}", claims())
    churned = min(CHURNED, most)
    keep("snapshot: none held", churn(churned))
    with held_snapshot():
        keep("snapshot: held", churn(churned))
    empty()


def add_jobs(count: int, queues: int = 1) -> None:
    execute(_JOBS.replace("n % %s", "(n %% %s)"), [queues, count])
    settle_down("pulse_django_job")


def claims(samples: int = SAMPLES) -> Figures:
    """Time claims of one job and of many, none of which is settled."""
    worker, lanes = Identity("bench"), Job.objects.lanes()
    return {
        "claim_1_ms": timed(lambda: Job.objects.claim(worker, limit=1, lanes=lanes), 1, samples),
        "claim_100_ms": timed(lambda: Job.objects.claim(worker, limit=AT_ONCE, lanes=lanes), AT_ONCE, samples),
        "lanes_ms": timed(lambda: Job.objects.lanes(), None, samples),
    }


def timed(do: Callable[[], Any], expected: int | None, samples: int) -> float:
    took = []
    for _ in range(samples):
        started = time.perf_counter()
        found = do()
        took.append((time.perf_counter() - started) * 1000)
        if expected is not None and len(found) != expected:
            raise SystemExit(f"{len(found)} of {expected} jobs were claimed: the figure would be a lie")
    return statistics.median(took)


def churn(jobs: int) -> Figures:
    """Claim and settle all of a backlog. Compare the claims of its first tenth with those of its last."""
    empty()
    add_jobs(jobs)
    worker, lanes, took = Identity("bench"), Job.objects.lanes(), []
    while True:
        started = time.perf_counter()
        claimed = Job.objects.claim(worker, limit=AT_ONCE, lanes=lanes)
        took.append((time.perf_counter() - started) * 1000)
        if not claimed:
            break
        done = [Report(claim.lease, Succeeded(), Complete()) for claim in claimed]
        if len(Job.objects.settle(done).accepted) != len(done):
            raise SystemExit("a settle was refused")
    tenth = max(1, len(took) // 10)
    first, last = statistics.median(took[:tenth]), statistics.median(took[-tenth - 1 : -1])
    return {"claim_100_ms_first_tenth": first, "claim_100_ms_last_tenth": last}


@contextmanager
def held_snapshot() -> Iterator[None]:
    """Keep a transaction open that can still see what was there, as a report or a dump would."""
    with psycopg.connect(database_url("postgresql")) as session:
        session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        session.execute("SELECT pg_current_snapshot()")  # of no table: a lock on one would keep it from being emptied
        yield
        session.rollback()
