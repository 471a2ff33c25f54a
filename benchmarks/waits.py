"""What is not throughput: how soon a job begins, what an idle worker costs, how long a beat takes."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time

from benchmarks import enqueuer
from benchmarks.counters import Counters
from benchmarks.noop import STAMPS, nothing
from benchmarks.processes import Surroundings, cpu_seconds, pss_mib, working
from benchmarks.scratch import empty, fill, settle_down
from pulse_django.models import Job, Minute
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.run.registry import key_of

GAP_WITH_NOTIFY, GAP_POLLING = 0.06, 0.7  # seconds between two jobs; when polling, less would share one poll
LONGEST_PICKUP, LONGEST_ENQUEUE = 30.0, 1_800.0
# Backends hand in what they counted within this time, so what they did at the start is not counted as idle.
CALM = 11.0
HELD, BEATS, CLAIMED_AT_ONCE = 1_000, 20, 200


def pickup(around: Surroundings, jobs: int, *, notify: bool = True, gap: float = GAP_WITH_NOTIFY) -> list[float]:
    """Return milliseconds from commit to handler start, sorted, with an otherwise idle worker."""
    empty()
    name = f"pickup-{gap:g}" if notify else "polling"
    stamps = around.folder / f"{around.name}-{name}.stamps"
    environment = around.environment(
        {} if notify else {"NOTIFY": False},
        **{STAMPS: str(stamps), enqueuer.ENQUEUE: f"{around.tasks} {jobs} {gap}"},
    )
    code = f"import runpy; runpy.run_path({enqueuer.__file__!r}, run_name='__main__')"
    command = [sys.executable, "manage.py", "shell", "-v", "0", "-c", code]
    with working(around, around.log(name), environment, listens=notify):
        done = subprocess.run(
            command, cwd=around.project, env=environment, capture_output=True, text=True, timeout=LONGEST_ENQUEUE
        )
        if done.returncode:
            raise SystemExit(f"The enqueuer failed: {done.stderr}")
        committed = instants(done.stdout)
        deadline = time.monotonic() + LONGEST_PICKUP
        while not committed.keys() <= (called := instants(stamps.read_text() if stamps.exists() else "")).keys():
            if time.monotonic() > deadline:
                raise SystemExit(f"{len(committed.keys() - called.keys())} of {jobs} jobs were not picked up")
            time.sleep(0.05)
    return sorted((called[number] - instant) / 1e6 for number, instant in committed.items())


def instants(text: str) -> dict[int, int]:
    """Read lines of a number and an instant. The last may still be on its way."""
    complete = text[: text.rfind("\n") + 1]
    return {int(number): int(instant) for number, instant in (line.split() for line in complete.splitlines())}


def percentile(ordered: list[float], share: float) -> float:
    """Return the value that this share of them does not exceed."""
    return ordered[max(0, math.ceil(len(ordered) * share) - 1)]


def idle(around: Surroundings, seconds: float, counters: Counters) -> dict[str, float]:
    """Watch a worker that has nothing to do."""
    empty()
    for minute in Minute.objects.unwritten():  # or the worker writes the minutes of all benchmarks before
        Minute.objects.write(minute, is_latest=False)
    settle_down("pulse_django_job")
    with working(around, around.log("idle"), around.environment(), listens=True) as worker:
        time.sleep(min(CALM, seconds))
        members = worker.family()
        before, cpu, started = counters.read(), sum(map(cpu_seconds, members)), time.monotonic()
        time.sleep(seconds)
        after, took = counters.read(), time.monotonic() - started
        used = sum(map(cpu_seconds, members)) - cpu
        return {
            "idle_statements_per_s": counters.statements_between(before, after) / took,
            "idle_cpu_percent": 100 * used / took,
            "idle_pss_mb": sum(map(pss_mib, members)),
            "idle_processes": len(members),
        }


def heartbeat() -> float:
    """Return the milliseconds that one beat for a thousand running jobs takes."""
    fill([NewJob(task=key_of(nothing))] * HELD)
    worker, leases = Identity("bench"), list[Lease]()
    while claims := Job.objects.claim(worker, limit=CLAIMED_AT_ONCE):
        leases += [claim.lease for claim in claims]
    took = []
    for _ in range(BEATS):
        started = time.perf_counter()
        beat = Job.objects.heartbeat(leases)
        took.append((time.perf_counter() - started) * 1000)
        if len(beat.alive) != HELD:
            raise SystemExit(f"Only {len(beat.alive)} of {HELD} leases were extended")
    return statistics.median(took)
