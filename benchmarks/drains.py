"""The contenders: who drains the same number of no-op jobs how fast, all by the same clock, the server's."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.counters import Counters
from benchmarks.floor import drain_by_pgbench
from benchmarks.noop import nothing, nothing_async
from benchmarks.processes import Surroundings, run_burst
from benchmarks.rival import PgQueuer
from benchmarks.scratch import execute, fill
from pulse_django.execution.registry import key_of
from pulse_django.words.job_options import NewJob

Figures = dict[str, float]
# What the backends of a worker that has ended still need to hand in their counts.
PAUSE_FOR_COUNTS = 0.3
_EVIDENCE = """
SELECT
    count(*), count(*) FILTER (WHERE status = 'COMPLETED' AND attempts = 1),
    (SELECT count(*) FROM pulse_django_attempt WHERE outcome = 'SUCCEEDED'),
    extract(epoch FROM max(finished_at) - min(started_at))::float8
FROM pulse_django_job
"""


@dataclass(frozen=True)
class Contender:
    """Drains so many jobs, and returns what was measured, by key."""

    part: str  # what --only calls it
    name: str
    drain: Callable[[int], Figures]


def contenders(around: Surroundings, counters: Counters, rival: PgQueuer | None) -> list[Contender]:
    """Return them in an order in which those that are compared stand next to each other."""

    def drain(key: str, task: Any, processes: int) -> Callable[[int], Figures]:
        return lambda jobs: _by_worker(key, task, processes, jobs, around, counters)

    def floor(connections: int) -> Callable[[int], Figures]:
        return lambda jobs: _by_pgbench(connections, jobs)

    ours = [
        Contender("floor", "floor_1", floor(1)),
        Contender("drain", "drain_1", drain("drain_1", nothing, 1)),
        Contender("floor", "floor_2", floor(2)),
        Contender("async", "drain_async_1", drain("drain_async_1", nothing_async, 1)),
        Contender("drain", "drain_2", drain("drain_2", nothing, 2)),
    ]
    if rival is None:
        return ours
    one = Contender("pgqueuer", "pgqueuer_1", lambda jobs: {"pgqueuer_1": rival.drain(jobs, processes=1)})
    two = Contender("pgqueuer", "pgqueuer_2", lambda jobs: {"pgqueuer_2": rival.drain(jobs, processes=2)})
    return [*ours[:2], one, *ours[2:], two]


def _by_worker(key: str, task: Any, processes: int, jobs: int, around: Surroundings, counters: Counters) -> Figures:
    fill([_job_of(task)] * jobs)
    before = counters.read()
    seconds = run_burst(around, processes)
    time.sleep(PAUSE_FOR_COUNTS)
    after = counters.read()
    figures = {key: checked_rate(jobs), f"{key}_with_startup": jobs / seconds}
    if key == "drain_1":
        figures["statements_per_job"] = counters.statements_between(before, after) / jobs
        figures["wal_bytes_per_job"] = counters.wal_bytes_between(before, after) / jobs
    return figures


def _by_pgbench(connections: int, jobs: int) -> Figures:
    job = _job_of(nothing)
    drain = drain_by_pgbench(job, connections=connections)
    fill([job] * jobs)
    drain(jobs)
    return {f"floor_{connections}": checked_rate(jobs)}


def _job_of(task: Any) -> NewJob:
    return NewJob(task=key_of(task))


def checked_rate(jobs: int) -> float:
    """Return jobs a second from the first claim to the last settle, if every job ran once and is in the ledger."""
    [[kept, completed, entries, seconds]] = execute(_EVIDENCE)
    if not kept == completed == entries == jobs:
        raise SystemExit(
            f"Of {jobs} jobs {kept} are kept, {completed} were completed at the first attempt and {entries} are in "
            "the ledger: the figure would be a lie"
        )
    return float(jobs / seconds)
