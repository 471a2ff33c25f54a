"""Whole workers are killed, keeper and children at once; a watchdog elsewhere finds out when their leases have ended.

Each worker has a queue and a job of its own, so that nobody runs the job again and its row shows what the reap left.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from benchmarks.processes import Surroundings
from benchmarks.recovery_processes import Herd, kill_at_once, wait_until_leases_are_believed
from benchmarks.recovery_tasks import hold
from benchmarks.scratch import empty, execute
from pulse_django.models import Attempt, Job
from testproject.harness.processes import StartedWorker, wait_until

SHORT: dict[str, Any] = {"LEASE_TTL": 2, "HEARTBEAT_INTERVAL": 0.66, "WATCHDOG_INTERVAL": 0.5}
DEFAULTS: dict[str, Any] = {"LEASE_TTL": 30, "HEARTBEAT_INTERVAL": 10, "WATCHDOG_INTERVAL": 10}
# A kill comes within this many beats after the job began: also under the lease that the claim gave.
BEATS = 3
LONGEST_CLAIM = 30.0
PATIENCE = 20.0  # beyond TTL and tick, until a job counts as lost
LOOK = 0.05


@dataclass(slots=True)
class Kill:
    """One worker's end, by the database's clock."""

    worker: StartedWorker
    job_id: int
    due_at: float  # by ours
    before: datetime | None = None
    after: datetime | None = None
    lease_until: datetime | None = None  # as it was last seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """Seconds of one recovery. The kill is taken to be as early as it can have been."""

    reaped: float  # from the kill
    lease_left: float  # at the kill
    after_lease: float  # from the end of the lease to the reap
    uncertain: float  # how long the kill itself may have taken
    apart: float  # by how much the time that Pulse reports differs from the one that was observed


def kill_workers(around: Surroundings, pulse: dict[str, Any], kills: int, at_once: int) -> list[Recovered]:
    """Kill that many workers, so many in each wave, and return how each of their jobs was recovered."""
    empty()
    wait_until_leases_are_believed(pulse["LEASE_TTL"])
    found: list[Recovered] = []
    with Herd(around, pulse) as members:
        members.watchdog()
        while len(found) < kills:
            found += wave(members, pulse, len(found), min(at_once, kills - len(found)))
    return found


def wave(members: Herd, pulse: dict[str, Any], number: int, count: int) -> list[Recovered]:
    queues = [f"wave-{number}-{index}" for index in range(count)]
    workers = [members.worker(queue) for queue in queues]
    for worker in workers:
        worker.wait_until_ready()
    job_ids = [int(hold.using(queue_name=queue).enqueue().id) for queue in queues]
    wait_until(lambda: running(job_ids) == count, "the jobs did not begin", LONGEST_CLAIM)
    longest = BEATS * pulse["HEARTBEAT_INTERVAL"]
    kills = [
        Kill(worker, job_id, time.monotonic() + random.uniform(0, longest))
        for worker, job_id in zip(workers, job_ids, strict=True)
    ]
    watch(kills, longest + pulse["LEASE_TTL"] + pulse["WATCHDOG_INTERVAL"] + PATIENCE)
    return [recovery_of(kill) for kill in kills]


def running(job_ids: Sequence[int]) -> int:
    return int(Job.objects.running().filter(pk__in=job_ids).count())


def watch(kills: list[Kill], patience: float) -> None:
    """Kill each when it is due, and look at their leases until all of them have been ended."""
    deadline = time.monotonic() + patience
    waiting = {kill.job_id: kill for kill in kills}
    while waiting:
        for kill in waiting.values():
            if kill.before is None and time.monotonic() >= kill.due_at:
                kill.before, kill.after = kill_at_once(kill.worker)
        rows = execute("SELECT id, lease_until FROM pulse_django_job WHERE id = ANY (%s)", [list(waiting)])
        for job_id, lease_until in rows:
            if lease_until is not None:
                waiting[job_id].lease_until = lease_until
                continue
            if waiting[job_id].before is None:
                raise SystemExit(f"Job {job_id} was taken from a worker that was alive")
            del waiting[job_id]
        if time.monotonic() > deadline:
            raise SystemExit(f"Lost: nobody ended the runs of the jobs {list(waiting)}")
        time.sleep(LOOK)


def recovery_of(kill: Kill) -> Recovered:
    """Read the ledger, which must tell of this one run and how it ended."""
    [job] = Job.objects.filter(pk=kill.job_id)
    entries = list(Attempt.objects.filter(job_id=kill.job_id))
    told = [(entry.number, entry.outcome, entry.message) for entry in entries]
    if told != [(1, "WORKER_LOST", "worker lease expired")]:
        raise SystemExit(f"Job {job.pk}: not reaped exactly once, but {told}")
    if (job.status, job.attempts, job.refunds, job.losses) != ("RETRYING", 1, 0, 1):
        raise SystemExit(f"Job {job.pk}: {job.status} with {job.attempts} attempts and {job.losses} losses")
    reaped_at, before, after, lease_until = entries[0].finished_at, kill.before, kill.after, kill.lease_until
    if entries[0].last_seen_at is None:
        raise SystemExit(f"Job {job.pk}: nobody says when its worker was heard of last")
    if before is None or after is None or lease_until is None or reaped_at < lease_until:
        raise SystemExit(f"Job {job.pk}: reaped at {reaped_at}, under a lease until {lease_until}")
    return Recovered(
        reaped=(reaped_at - before).total_seconds(),
        lease_left=(lease_until - before).total_seconds(),
        after_lease=(reaped_at - lease_until).total_seconds(),
        uncertain=(after - before).total_seconds(),
        apart=abs((before - entries[0].last_seen_at).total_seconds()),
    )
