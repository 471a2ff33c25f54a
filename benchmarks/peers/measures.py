"""The measures: drain, enqueue, cost, pickup and idle. Each verifies that every job was done, and done once."""

from __future__ import annotations

import math
import statistics
import time
from dataclasses import dataclass

from benchmarks.peers.contender import Contender, MeasureFailed, wait_until
from benchmarks.peers.peer import task_of
from benchmarks.peers.server_counts import NOTHING, PAUSE_FOR_COUNTS, ServerCounts
from benchmarks.peers.stores import Database
from benchmarks.processes import cpu_seconds, pss_mib
from testproject.harness.processes import StartedProcess

Figures = dict[str, float]
LONGEST_START, LONGEST_END = 60.0, 30.0
FEWEST = 200  # jobs of a drain
SPARE = 3  # what a worker runs before it is watched


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How much of everything."""

    jobs: int
    seconds: float  # that a drain should take; the slow get fewer jobs
    one_by_one: int
    bulk: int
    cost: int
    pickups: int
    idle_seconds: float
    calm_seconds: float
    limit: float  # seconds after which a drain is given up


def drain(who: Contender, counts: ServerCounts, jobs: int, mode: str, processes: int, limit: float) -> Figures:
    """Drain a backlog of no-ops: from the first call of a handler until the store holds no job that is not done."""
    fill(who, jobs, mode)
    store = who.store if isinstance(who.store, Database) else None
    before, asked = (counts.read(store.name), store.asked) if store else (None, 0)
    with who.workers(mode, processes) as workers:
        wait_for_calls(who, workers, 1, LONGEST_START)
        wait_for_calls(who, workers, jobs, limit)
        ended = wait_for_end(who, jobs)
        called, first, last = who.calls()
    verify(who, jobs, called)
    seconds = ((last if who.is_on_redis else ended) - first) / 1e9
    figures = {"jobs_per_s": jobs / seconds, "jobs": float(jobs)}
    if store is not None and before is not None and processes == 1 and mode == who.peer.main_mode:
        asked = store.asked - asked
        store.close()
        time.sleep(PAUSE_FOR_COUNTS)
        spent = counts.between(before, counts.read(store.name))
        commits = max(0, spent.commits - asked)
        figures |= {"wal_bytes_per_job": spent.wal_bytes / jobs, "commits_per_job": commits / jobs}
    return figures


def fill(who: Contender, jobs: int, mode: str) -> None:
    who.reset()
    who.enqueue(jobs, "fill", task_of(mode))
    left, _ = who.counts()
    if left != jobs:
        raise MeasureFailed(f"{left} of {jobs} jobs were enqueued")
    who.store.settle_down()


def wait_for_calls(who: Contender, workers, jobs: int, limit: float) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + limit
    while (called := who.calls()[0]) < jobs:
        who.check(workers)
        if time.monotonic() > deadline:
            raise MeasureFailed(f"{called} of {jobs} jobs were run within {limit:g} s; its log ends: {who.said()}")
        time.sleep(0.004)


def wait_for_end(who: Contender, done: int) -> int:
    """Return the instant at which the store held nothing that is not done, and so many that are, if it keeps them.

    Each look counts from its beginning: to count many finished rows takes longer than the last jobs did.
    """
    looked_at = 0

    def is_over() -> bool:
        nonlocal looked_at
        looked_at = time.monotonic_ns()
        return who.left() == 0 and who.counts()[1] in (None, done)

    wait_until(is_over, "its handlers ran, but jobs are left, or not all are done", LONGEST_END)
    return looked_at


def verify(who: Contender, jobs: int, called: int) -> None:
    left, done = who.counts()
    if called != jobs or left or done not in (None, jobs):
        kept = "does not say" if done is None else f"has {done}"
        raise MeasureFailed(f"{jobs} jobs, {called} calls, {left} left, and the store {kept}: no figure")


def jobs_for(who: Contender, counts: ServerCounts, sizes: Sizes) -> int:
    """Let everything start once, and find how many jobs keep this peer busy for as long as a drain should take.

    By the calls of its handlers: who notes the ends of jobs once a second would otherwise be given far too few. Who was
    quick is asked again with more: many begin with small batches.
    """
    jobs = FEWEST
    for _ in range(2):
        drain(who, counts, jobs, who.peer.main_mode, 1, sizes.limit)
        _, first, last = who.calls()
        rate = jobs / max(1e-9, (last - first) / 1e9)
        fitting = max(FEWEST, min(sizes.jobs, int(rate * sizes.seconds) // 100 * 100))
        if fitting < 2 * jobs:
            return fitting
        jobs = fitting
    return jobs


def enqueue(who: Contender, sizes: Sizes, how: str) -> Figures:
    """Enqueue with nobody at work. Every job has to be there afterwards."""
    count = sizes.one_by_one if how == "one" else sizes.bulk
    who.reset()
    who.store.settle_down()
    seconds = who.enqueue(count, how, task_of(who.peer.main_mode))
    left, _ = who.counts()
    if left != count or not seconds:
        raise MeasureFailed(f"{left} of {count} jobs were enqueued")
    return {"jobs_per_s": count / seconds, "jobs": float(count)}


def cost(who: Contender, counts: ServerCounts, jobs: int, limit: float) -> Figures:
    """Count statements while a backlog is drained, from the first call of a handler until nothing is left."""
    if counts.source == NOTHING:
        raise MeasureFailed("pg_stat_statements is not loaded, and the server's log is not ours")
    mode, database = who.peer.main_mode, who.peer.database
    fill(who, jobs, mode)
    counts.watch(database)
    with who.workers(mode) as workers:
        wait_for_calls(who, workers, 1, LONGEST_START)
        mark, already = counts.mark(database), who.calls()[0]
        wait_for_calls(who, workers, jobs, limit)
        wait_for_end(who, jobs)
        statements = counts.statements_since(mark, database)
        called = who.calls()[0]
    verify(who, jobs, called)
    if already >= jobs:
        raise MeasureFailed("all jobs were run before counting began")
    return {"statements_per_job": statements / (jobs - already), "jobs": float(jobs - already)}


def idle_or_pickup(who: Contender, counts: ServerCounts, sizes: Sizes, what: str) -> Figures:
    """Watch one worker that has nothing to do, or single jobs."""
    who.reset()
    who.store.settle_down()
    if what == "idle" and not who.is_on_redis:  # what is logged takes time: a pickup is not
        counts.watch(who.peer.database)
    with who.workers(who.peer.main_mode) as workers:
        who.ask("pace", "0", "0.05")  # a few jobs that are not counted: the worker has started when they are done
        wait_until(lambda: len(stamps(who)) >= SPARE, f"not one job was run; {who.said()}", LONGEST_START, 0.05)
        found = idle(who, counts, sizes, workers[0]) if what == "idle" else pickup(who, sizes.pickups)
        who.check(workers)
    return found


def idle(who: Contender, counts: ServerCounts, sizes: Sizes, worker: StartedProcess) -> Figures:
    time.sleep(sizes.calm_seconds)
    members, database = worker.family(), who.peer.database
    cpu, started = sum(map(cpu_seconds, members)), time.monotonic()
    can_count = not who.is_on_redis and counts.source != NOTHING
    mark = counts.mark(database) if can_count else 0
    time.sleep(sizes.idle_seconds)
    took = time.monotonic() - started
    figures = {
        "pss_mib": sum(map(pss_mib, members)),
        "processes": float(len(members)),
        "cpu_percent": 100 * (sum(map(cpu_seconds, members)) - cpu) / took,
    }
    if can_count:
        figures["statements_per_s"] = counts.statements_since(mark, database) / took
    return figures


def pickup(who: Contender, jobs: int) -> Figures:
    """From just before the call that enqueues until the handler is called, with an otherwise idle worker."""
    said = who.ask("pace", str(jobs), str(who.peer.gap))
    enqueued = {int(number): int(instant) for number, instant in (line.split() for line in said.splitlines())}
    wait_until(
        lambda: enqueued.keys() <= stamps(who).keys(), "some jobs were not picked up within 30 s", LONGEST_END, 0.05
    )
    called = stamps(who)
    took = sorted((called[number] - instant) / 1e6 for number, instant in enqueued.items())
    return {"p50_ms": statistics.median(took), "p95_ms": of(took, 0.95), "p99_ms": of(took, 0.99), "jobs": float(jobs)}


def stamps(who: Contender) -> dict[int, int]:
    """Read when the handlers of numbered jobs were called first. The last line may still be on its way."""
    text = who.stamps.read_text() if who.stamps.exists() else ""
    found: dict[int, int] = {}
    for line in text[: text.rfind("\n") + 1].splitlines():
        number, instant = line.split()
        found.setdefault(int(number), int(instant))
    return found


def of(ordered: list[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]
