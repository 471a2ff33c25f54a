"""The contenders: who drains the same number of no-op jobs how fast, all by the same clock, the server's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from benchmarks.counters import Counters
from benchmarks.floor import drain_by_pgbench
from benchmarks.processes import PlainSurroundings, Surroundings, run_burst
from benchmarks.rival import PgQueuer
from benchmarks.scratch import execute, fill
from pulse_django.queue.words.job_options import NewJob

Figures = dict[str, float]
# What the backends of a worker that has ended still need to hand in their counts.
PAUSE_FOR_COUNTS = 0.3
_EVIDENCE = """
SELECT
    count(*), count(*) FILTER (WHERE status = 'COMPLETED' AND attempts = 1),
    (SELECT count(*) FROM pulse_django_ledger WHERE outcome = 'SUCCEEDED'),
    extract(epoch FROM max(finished_at) - min(started_at))::float8,
    string_agg(DISTINCT last_error, '; ')
FROM pulse_django_job
"""


@dataclass(frozen=True)
class Drain:
    """One way to drain: which handler, in how many processes, with which options of the worker."""

    part: str  # what --only calls it
    name: str
    task: str
    processes: int = 1
    flags: tuple[str, ...] = ()
    share: float = 1.0  # of the jobs: slow handlers get fewer
    is_lean_too: bool = False


DRAINS = (
    Drain("drain", "drain_1", "nothing", is_lean_too=True),
    Drain("async", "drain_async_1", "nothing_async", is_lean_too=True),
    Drain("drain", "drain_2", "nothing", 2, is_lean_too=True),
    Drain("orm", "orm_1", "insert", share=0.2),
    Drain("orm", "orm_async_1", "insert_async", share=0.2),
    Drain("orm", "orm_2", "insert", 2, share=0.2),
    Drain("sleep", "sleep_1", "sleep", flags=("--concurrency", "50"), share=0.5),
    Drain("sleep", "sleep_async_1", "sleep_async", flags=("--concurrency", "50"), share=0.5),
    Drain("compute", "compute_2", "compute", 2, share=0.2),
)


@dataclass(frozen=True)
class Contender:
    """Drains so many jobs, and returns what was measured, by key."""

    part: str  # what --only calls it
    name: str
    drain: Callable[[int], Figures]


def contenders(around: Sequence[Surroundings], counters: Counters, rival: PgQueuer | None) -> list[Contender]:
    """Return all of them: the floor, the worker in each project, the rival."""
    found = [
        Contender("floor", "floor_1", partial(_by_pgbench, 1)),
        Contender("floor", "floor_2", partial(_by_pgbench, 2)),
    ]
    for one in around:
        found += _workers(one, counters)
    if rival is not None:
        found.append(Contender("pgqueuer", "pgqueuer_1", lambda jobs: {"pgqueuer_1": rival.drain(jobs, processes=1)}))
        found.append(Contender("pgqueuer", "pgqueuer_2", lambda jobs: {"pgqueuer_2": rival.drain(jobs, processes=2)}))
    return found


def _workers(around: Surroundings, counters: Counters) -> Iterator[Contender]:
    lean = "" if isinstance(around, PlainSurroundings) else "lean_"
    for drain in DRAINS:
        if not lean or drain.is_lean_too:
            key = f"{lean}{drain.name}"
            yield Contender(f"{lean}{drain.part}", key, partial(_by_worker, key, drain, around, counters))


def _by_worker(key: str, drain: Drain, around: Surroundings, counters: Counters, jobs: int) -> Figures:
    jobs = max(1, int(jobs * drain.share))
    fill([NewJob(task=around.key(drain.task))] * jobs)
    before = counters.read()
    seconds = run_burst(around, drain.processes, *drain.flags)
    time.sleep(PAUSE_FOR_COUNTS)
    after = counters.read()
    figures = {key: checked_rate(jobs), f"{key}_with_startup": jobs / seconds}
    if key == "drain_1":
        figures["statements_per_job"] = counters.statements_between(before, after) / jobs
        figures["wal_bytes_per_job"] = counters.wal_bytes_between(before, after) / jobs
    return figures


def _by_pgbench(connections: int, jobs: int) -> Figures:
    job = NewJob(task="benchmarks.noop.nothing")
    drain = drain_by_pgbench(job, connections=connections)
    fill([job] * jobs)
    drain(jobs)
    return {f"floor_{connections}": checked_rate(jobs)}


def checked_rate(jobs: int) -> float:
    """Return jobs a second from the first claim to the last settle, if every job ran once and is in the ledger."""
    [[kept, completed, entries, seconds, errors]] = execute(_EVIDENCE)
    if not kept == completed == entries == jobs:
        raise SystemExit(
            f"Of {jobs} jobs {kept} are kept, {completed} were completed at the first attempt and {entries} are in "
            f"the ledger: the figure would be a lie. Errors: {errors}"
        )
    return float(jobs / seconds)
