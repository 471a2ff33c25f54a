"""A bad day, played with real workers: each misfortune moves the vital signs that it should, by the right amounts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from pulse_django.health import conditions
from pulse_django.metrics.exporters import readings
from pulse_django.metrics.vital_signs import (
    ACTIVE_LEASES,
    CONDITIONS,
    DEATH_TO_REQUEUE,
    FENCING_REJECTIONS,
    HEARTBEATS,
    JOBS_ENDED,
    JOBS_ENQUEUED,
    LATE_REPORTS,
    LEASE_ACQUISITION,
    LEASE_EXPIRATIONS,
    QUEUE_OLDEST_DUE,
    RECOVERY_REQUEUES,
    RUN_DURATION,
    RUNS,
)
from pulse_django.models import Attempt, Job, Minute, Pause
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import VitalSign
from pulse_django.queue.words.states import Status
from tests.crash.processes import through
from tests.crash.workers import Workers, wait_until
from tests.proxy import BlackHole
from tests.queue.steps import sql
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

MINUTE = timedelta(minutes=1)


class Reckoning:
    """What was counted since it began. The minute that goes on is written as far as it has come."""

    def __init__(self) -> None:
        self._begin = self._now()
        Minute.objects.write(self._begin - MINUTE)

    def end(self) -> None:
        last = self._now()
        minute = self._begin
        while minute <= last:
            Minute.objects.write(minute)  # if a watchdog was quicker, it counted the same
            Minute.objects.note(minute, {"conditions": found_now()})
            minute += MINUTE
        self.totals = Minute.objects.filter(totals__isnull=False).latest("minute").totals

    def __call__(self, sign: VitalSign, **labels: str) -> float:
        return counters.total(self.totals, sign, **labels)

    def _now(self) -> datetime:
        [(now,)] = sql("SELECT date_trunc('minute', clock_timestamp())")
        found: datetime = now
        return found


def found_now() -> dict[str, int]:
    return {one.condition.name: len(one.subjects) for one in conditions.ask_all("default").found}


def reading(sign: VitalSign, *labels: str) -> Any:
    return next((one.value for one in readings.read("default") if one.sign is sign and one.labels == labels), None)


def is_over(*jobs: Any) -> bool:
    return not Job.objects.filter(pk__in=[job.id for job in jobs], finished_at=None).exists()


def run_begins(workers: Workers, job: Any) -> None:
    """Wait for the handler: a worker that is stopped between its claim and the call has something else to report."""
    wait_until(lambda: bool(workers.trace.of(job.id, "begin")))


def test_a_worker_that_is_killed(workers: Workers) -> None:
    count = Reckoning()
    victim = workers.ready()
    jobs = [handlers.naps.enqueue(1.0) for _ in range(2)]
    for job in jobs:
        run_begins(workers, job)
    wait_until(lambda: reading(ACTIVE_LEASES, "default") == 2)
    victim.kill()
    [(killed_at,)] = sql("SELECT clock_timestamp()")
    workers.ready()
    wait_until(lambda: is_over(*jobs))
    count.end()
    assert count(JOBS_ENQUEUED) == count(JOBS_ENDED, status="COMPLETED") == 2
    assert count(LEASE_EXPIRATIONS) == count(RECOVERY_REQUEUES) == count(DEATH_TO_REQUEUE) == 2
    assert count(RUNS, outcome="WORKER_LOST") == count(RUNS, outcome="SUCCEEDED") == 2
    assert count(LEASE_ACQUISITION) == count(RUN_DURATION) == 4, "two attempts each"
    assert count(FENCING_REJECTIONS) == count(LATE_REPORTS) == 0, "the dead report nothing"
    assert count(HEARTBEATS, result="answered") > 0
    for lost in Attempt.objects.filter(outcome="WORKER_LOST"):
        observed, reported = lost.finished_at - killed_at, lost.finished_at - lost.last_seen_at
        assert abs(reported - observed) < timedelta(seconds=1)


def test_a_worker_that_is_frozen_and_comes_back(workers: Workers) -> None:
    count = Reckoning()
    frozen = workers.ready()
    job = handlers.naps.enqueue(0.5)
    run_begins(workers, job)
    frozen.freeze()
    workers.ready()
    wait_until(lambda: is_over(job))
    frozen.thaw()
    wait_until(lambda: bool(Attempt.objects.get(number=1).late_outcome))
    wait_until(lambda: sql("SELECT sum((vitals -> 'refused' ->> 'settle')::int) FROM pulse_django_worker")[0][0] == 1)
    count.end()
    assert count(LEASE_EXPIRATIONS) == count(RECOVERY_REQUEUES) == 1
    # What it says depends on whether its handler ended before it was told that the lease was over.
    late = Attempt.objects.get(number=1).late_outcome
    assert count(LATE_REPORTS, outcome=late) == count(LATE_REPORTS) == 1
    assert count(FENCING_REJECTIONS, verb="settle") == 1
    assert count(FENCING_REJECTIONS, verb="heartbeat") <= 1, "its beat may have been refused as well, or never sent"
    assert count(JOBS_ENDED) == count(JOBS_ENDED, status="COMPLETED") == 1


def test_a_worker_that_is_cut_off(workers: Workers, proxy: BlackHole) -> None:
    count = Reckoning()
    cut_off = workers.ready(env=through(proxy))
    job = handlers.naps_while_allowed.enqueue(60)
    run_begins(workers, job)
    proxy.swallow()
    workers.ready()
    wait_until(lambda: Attempt.objects.filter(outcome="WORKER_LOST").exists())
    Job.objects.request_cancel([job.id])
    wait_until(lambda: is_over(job))
    proxy.heal()
    failed = "SELECT (vitals ->> 'beat_failures')::int, (vitals ->> 'database_errors')::int FROM pulse_django_worker"
    mine = f"{failed} WHERE name LIKE '%%-{cut_off.pid}' OR pid = {cut_off.pid}"
    wait_until(lambda: bool(sql(mine)) and sql(mine)[0][0] > 0 and sql(mine)[0][1] > 0)
    count.end()
    assert count(LEASE_EXPIRATIONS) == count(RECOVERY_REQUEUES) == count(DEATH_TO_REQUEUE) == 1
    assert count(HEARTBEATS, result="failed") >= 1
    assert count(JOBS_ENDED, status="CANCELLED") == 1


def test_a_job_that_kills_its_process(workers: Workers) -> None:
    count = Reckoning()
    workers.ready(settings={"MAX_LOST_WORKERS": 2})
    job = handlers.is_killed.enqueue()
    wait_until(lambda: is_over(job))
    count.end()
    assert count(RUNS, outcome="WORKER_LOST") == 2
    assert count(RECOVERY_REQUEUES) == 1, "the second loss was its end"
    assert count(JOBS_ENDED, status="DEAD_LETTERED") == 1
    assert count(LEASE_EXPIRATIONS) == 0, "its keeper saw it die, and waited for no lease"


def test_a_queue_that_is_paused(workers: Workers) -> None:
    count = Reckoning()
    Pause.objects.pause(queue="mail")
    workers.ready()
    waiting = handlers.naps.using(queue_name="mail").enqueue(0)
    done = handlers.naps.enqueue(0)
    wait_until(lambda: is_over(done))
    wait_until(lambda: reading(QUEUE_OLDEST_DUE, "mail") > 0.2)
    count.end()
    assert reading(CONDITIONS, "paused-backlog", "risk") == 1
    assert count(JOBS_ENQUEUED, queue="mail") == 1
    assert count(JOBS_ENDED, queue="mail") == 0
    assert count(LEASE_ACQUISITION, queue="mail") == 0
    assert count(LEASE_ACQUISITION, queue="default") == 1
    assert Job.objects.get(pk=waiting.id).status == Status.PENDING
