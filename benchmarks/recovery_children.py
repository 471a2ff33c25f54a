"""Only the process that runs handlers is killed; its keeper settles the run, and another process takes its place.

A child that dies young makes the next one in a row wait, up to ten seconds. Here each death is the first in a row: in
between a child ends of its own accord, because it has run as many jobs as it may.
"""

from __future__ import annotations

import os
import random
import signal
import time
from dataclasses import dataclass
from typing import Any

from benchmarks.processes import Surroundings
from benchmarks.recovery_processes import Herd, database_now
from benchmarks.recovery_tasks import hold, pass_by
from benchmarks.scratch import empty
from pulse_django.models import Attempt, Job
from testproject.harness.processes import StartedWorker, wait_until

# So long, and without a watchdog, that nobody but the keeper can be what recovers.
LONG_LEASE: dict[str, Any] = {"LEASE_TTL": 30, "HEARTBEAT_INTERVAL": 10, "WATCHDOG_INTERVAL": 10}
QUEUE = "children"
RUNS = 2  # of a child until it ends: the second attempt of the one job, and one that passes by
SURELY_BEGUN, LONGEST_RUN = 0.1, 0.6
PATIENCE = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaced:
    """Seconds from one kill, by the database's clock."""

    settled: float
    again: float  # until the job's next run began, after its pause of some 0.9 to 1.1 s


def kill_children(around: Surroundings, kills: int) -> list[Replaced]:
    empty()
    with Herd(around, LONG_LEASE) as members:
        worker = members.worker(QUEUE, "--max-jobs", str(RUNS))
        worker.wait_until_ready()
        return [kill_child(worker) for _ in range(kills)]


def kill_child(worker: StartedWorker) -> Replaced:
    child = present_child(worker)
    job_id = int(hold.using(queue_name=QUEUE).enqueue().id)
    wait_until(lambda: status(job_id) == "RUNNING", f"job {job_id} did not begin", PATIENCE)
    time.sleep(random.uniform(SURELY_BEGUN, LONGEST_RUN))
    if worker.children() != [child]:
        raise SystemExit(f"Process {child} ended while it ran a job:\n{worker.log_end}")
    killed_at = database_now()
    os.kill(child, signal.SIGKILL)
    wait_until(lambda: status(job_id) == "COMPLETED", f"job {job_id} was lost", PATIENCE)
    grow_old(worker)
    lost, finished = ledger(job_id)
    return Replaced(
        settled=(lost.finished_at - killed_at).total_seconds(),
        again=(finished.started_at - killed_at).total_seconds(),
    )


def grow_old(worker: StartedWorker) -> None:
    """Let the child that followed have its last run, and be followed by another."""
    child = present_child(worker)
    job_id = int(pass_by.using(queue_name=QUEUE).enqueue().id)
    wait_until(lambda: status(job_id) == "COMPLETED", f"job {job_id} was lost", PATIENCE)
    wait_until(lambda: worker.children() not in ([], [child]), f"process {child} did not end", PATIENCE)


def present_child(worker: StartedWorker) -> int:
    wait_until(worker.children, lambda: f"no process runs handlers:\n{worker.log_end}", PATIENCE)
    return worker.child()


def ledger(job_id: int) -> tuple[Attempt, Attempt]:
    """Return the run that was lost and the one that made up for it; the job must have had these and no others."""
    entries = list(Attempt.objects.filter(job_id=job_id).order_by("number"))
    told = [(entry.number, entry.outcome, entry.message) for entry in entries]
    if told != [(1, "WORKER_LOST", "worker process killed by SIGKILL"), (2, "SUCCEEDED", "")]:
        raise SystemExit(f"Job {job_id}: not recovered exactly once, by its keeper, and run again, but {told}")
    [job] = Job.objects.filter(pk=job_id)
    if (job.attempts, job.refunds, job.losses) != (2, 0, 1):
        raise SystemExit(f"Job {job_id}: {job.attempts} attempts and {job.losses} losses")
    return entries[0], entries[1]


def status(job_id: int) -> str:
    return str(Job.objects.values_list("status", flat=True).get(pk=job_id))
