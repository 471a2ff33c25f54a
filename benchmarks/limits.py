"""What claims with limits and shares cost, beside plain ones: ``python benchmarks/limits.py``.

A million claimable jobs in one queue, half of them without a key. Kinds of claims alternate in each round, and each
round's ratio is to the plain claim of that round. What was claimed is put back, so that all meet the same backlog.
Claims are sent as a worker sends them, on a connection that keeps their plans.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from benchmarks.scratch import execute, scratch_database, settle_down
from pulse_django.limits.rules import Limit, Rate
from pulse_django.models import Limiter
from pulse_django.queue.words.lane_keys import lane_key
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.worker.guarded_connection import GuardedConnection

ME = Identity("bench")
WORKER = GuardedConnection("default", "bench", keeps_plans=True)
KEYS, BLOCKED = 100, "blocked"
MANY = 1_000_000
HOUR = timedelta(hours=1)
LIMITS = {
    "limit of a name": Limit("name", max_running=MANY),
    "limit per key": Limit("key", max_running_per_key=MANY),
    "name and key": Limit("both", max_running=MANY, max_running_per_key=MANY),
    "rate of a name": Limit("rate", rate=Rate(MANY, per=HOUR, burst=MANY)),
    "rate per key": Limit("key_rate", rate_per_key=Rate(MANY, per=HOUR, burst=MANY)),
}
Claiming = Callable[[], list[Claim]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=1_000_000, help="200,000 at least")
    parser.add_argument("--rounds", type=int, default=60)
    options = parser.parse_args()
    with scratch_database():
        create(options.jobs)
        for size in (100, 10):
            compare(size, kinds(size), options.rounds)
        blocked(options.jobs, options.rounds)
        looks(options.rounds)
        WORKER.hang_up()


def create(jobs: int) -> None:
    names = ["", *(limit.name for limit in LIMITS.values())]
    Limiter.objects.declare_new("bench", {limit.name: limit.numbers() for limit in LIMITS.values()})
    insert(jobs // 2, "default", "")
    for name in names:
        for key in range(KEYS):
            insert(jobs // 2 // len(names) // KEYS, "default", lane_key(name, str(key)))
    settle_down("pulse_django_job")


def insert(count: int, queue: str, key: str) -> None:
    execute(
        "INSERT INTO pulse_django_job (task, queue, priority, args, lane_key)"
        " SELECT 'bench.noop', %s, 0, jsonb_build_array(n), %s FROM generate_series(1, %s) AS n",
        [queue, key, count],
    )


def plain(size: int) -> Claiming:
    return lambda: WORKER.call(WORKER.jobs.claim, ME, limit=size, lanes=[Lane("default", 0)])


def fair(size: int, lanes: int) -> Claiming:
    chosen = [Lane("default", 0, lane_key("", str(key))) for key in range(lanes)]
    takes = dict.fromkeys(chosen, -(-size // lanes))
    return lambda: WORKER.call(WORKER.jobs.claim, ME, limit=size, lanes=chosen, takes=takes)


def limited(size: int, limit: Limit, lanes: int) -> Claiming:
    chosen = [Lane("default", 0, lane_key(limit.name, str(key))) for key in range(lanes)]
    takes = dict.fromkeys(chosen, -(-size // lanes))
    return lambda: WORKER.call(WORKER.jobs.claim_limited, ME, limit.name, chosen, takes, limit=size).claims


def kinds(size: int) -> dict[str, Claiming]:
    found = {"plain": plain(size), "fair, 10 lanes": fair(size, 10), "fair, 32 lanes": fair(size, min(32, size))}
    for name, limit in LIMITS.items():
        found |= {f"{name}, 1 lane": limited(size, limit, 1), f"{name}, 10 lanes": limited(size, limit, 10)}
    return found


def compare(size: int, claims: dict[str, Claiming], rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in claims}
    for _ in range(rounds):
        for name, claim in claims.items():
            times[name].append(timed(claim, size))
    base = times["plain"]
    for name, found in times.items():
        ratio = statistics.median(one / other for one, other in zip(found, base, strict=True))
        p50 = statistics.median(found) * 1000
        print(f"{size:4} jobs, {name:24} {p50:6.2f} ms (p50), {ratio:.2f} of plain", flush=True)


def timed(claim: Claiming, size: int) -> float:
    began = time.perf_counter()
    claims = claim()
    took = time.perf_counter() - began
    if len(claims) != size:
        raise SystemExit(f"{len(claims)} of {size} jobs were claimed: the figure would be a lie")
    put_back()
    return took


def put_back() -> None:
    execute(
        "UPDATE pulse_django_job_hot SET status = 'PENDING', locked_by = NULL, lease_until = NULL, token = NULL,"
        " deadline = NULL, attempts = 0 WHERE status = 'RUNNING'"
    )


def blocked(jobs: int, rounds: int) -> None:
    """Claim from the free lanes of a limit, with and without many due jobs of a key that is full."""
    limit = LIMITS["limit per key"]
    claims = {"plain": plain(10), "free lanes": limited(10, limit, 10)}
    compare(10, claims, rounds)
    WORKER.hang_up()
    insert(jobs, "default", lane_key(limit.name, BLOCKED))
    settle_down("pulse_django_job")
    print(f"beside {jobs:,} due jobs of a key that is full:")
    compare(10, claims, rounds)


def looks(rounds: int) -> None:
    """Look at a hundred thousand tenants."""
    WORKER.hang_up()
    execute(
        "INSERT INTO pulse_django_job (task, queue, priority, lane_key)"
        " SELECT 'bench.noop', 'tenants', 0, ':' || left(md5(n::text), 4) || n FROM generate_series(1, 100000) AS n"
    )
    settle_down("pulse_django_job")
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        WORKER.call(WORKER.jobs.waiting, ["tenants"])
        took.append((time.perf_counter() - began) * 1000)
    print(f"a look among 100,000 tenants: {statistics.median(took):.2f} ms (p50)")


if __name__ == "__main__":
    main()
