"""What nothing of this kind can beat on this machine: the same work with no queue, and hardly any Python, around it."""

from __future__ import annotations

import json
import statistics
import time

import psycopg

from benchmarks.drains import checked_rate
from benchmarks.floor import drain_by_pgbench
from benchmarks.peers.measures import Figures, of
from benchmarks.scratch import database_url, empty, execute, fill, settle_down
from pulse_django.queue.words.job_options import NewJob

TASK = "bench.nothing"
CHANNEL = "bench_floor"
_COPY = "COPY pulse_django_job_hot (task, queue, priority, args, kwargs, next_run_at, max_attempts) FROM STDIN"
LONGEST_WAIT = 5.0


def drain(jobs: int, connections: int) -> Figures:
    """Let pgbench run our claim and our settle."""
    job = NewJob(task=TASK)
    drain_it = drain_by_pgbench(job, connections=connections)
    fill([job] * jobs)
    drain_it(jobs)
    return {"jobs_per_s": checked_rate(jobs), "jobs": float(jobs)}


def copy(jobs: int) -> Figures:
    """Write the rows that a bulk enqueue writes by one COPY of text that is ready."""
    empty()
    settle_down("pulse_django_job")
    rows = ["\t".join([TASK, "default", "0", json.dumps([number]), "{}", "now", "10"]) + "\n" for number in range(jobs)]
    text = "".join(rows).encode()
    with psycopg.connect(database_url("postgresql")) as session:
        started = time.perf_counter()
        with session.cursor().copy(_COPY) as sink:
            sink.write(text)
        session.commit()
        seconds = time.perf_counter() - started
    [[found]] = execute("SELECT count(*) FROM pulse_django_job")
    if found != jobs:
        raise SystemExit(f"{found} of {jobs} rows were copied: the figure would be a lie")
    return {"jobs_per_s": jobs / seconds, "jobs": float(jobs)}


def notify(times: int, gap: float) -> Figures:
    """Time a bare notification: from just before one session sends it until another has it."""
    took = []
    with (
        psycopg.connect(database_url("postgresql"), autocommit=True) as speaker,
        psycopg.connect(database_url("postgresql"), autocommit=True) as listener,
    ):
        listener.execute(f"LISTEN {CHANNEL}")
        for number in range(times):
            time.sleep(gap)
            started = time.perf_counter()
            speaker.execute(f"NOTIFY {CHANNEL}, '{number}'")
            heard = [one.payload for one in listener.notifies(timeout=LONGEST_WAIT, stop_after=1)]
            took.append((time.perf_counter() - started) * 1000)
            if heard != [str(number)]:
                raise SystemExit(f"notification {number} was not heard: the figure would be a lie")
    took.sort()
    return {"p50_ms": statistics.median(took), "p95_ms": of(took, 0.95), "p99_ms": of(took, 0.99), "jobs": float(times)}
