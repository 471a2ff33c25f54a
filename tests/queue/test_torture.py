"""Every verb on the same few rows, in shuffled order, from ten connections at once."""

from __future__ import annotations

import os
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from django.db import OperationalError, connection
from django.test import override_settings

from pulse_django.models import Attempt, Job
from pulse_django.queue.words.decisions import Complete, DeadLetter, Decision, Retry
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity, Lease
from pulse_django.queue.words.outcomes import Succeeded, WorkerLost
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report
from testproject.postgres import log_file
from tests.queue.steps import may_give_up, sql

pytestmark = pytest.mark.usefixtures("pulse_db")

SECONDS = 4.0
JOBS = 300


class Torture:
    def __init__(self) -> None:
        self.leases: list[Lease] = []
        self.deadlocks = 0
        self.done: dict[str, int] = {}
        self.end = time.monotonic() + SECONDS

    def some(self) -> list[Lease]:
        known = self.leases[-JOBS:]
        return random.sample(known, min(len(known), random.randint(1, 100)))

    def beat(self) -> int:
        return len(Job.objects.heartbeat(self.some()).alive)

    def settle(self) -> int:
        decisions: list[Decision] = [Retry(timedelta(), "again")] * 9 + [DeadLetter("enough")]
        reports = [Report(lease, WorkerLost(), random.choice(decisions)) for lease in self.some()]
        return len(Job.objects.settle(reports).accepted)

    def complete(self) -> int:
        reports = [Report(lease, Succeeded(), Complete()) for lease in self.leases[-3:]]
        Job.objects.enqueue_many(new_jobs(len(done := Job.objects.settle(reports).accepted)))
        return len(done)

    def claim(self) -> int:
        claims = Job.objects.claim(Identity("w"), limit=50)
        self.leases += [claim.lease for claim in claims]
        return len(claims)

    def reap(self) -> int:
        with may_give_up():
            return len(Job.objects.reap())
        return 0

    def cancel(self) -> int:
        answer = Job.objects.request_cancel([lease.job_id for lease in self.some()[:1]])
        Job.objects.enqueue_many(new_jobs(len(answer.asked | answer.cancelled)))
        return len(answer.asked | answer.cancelled)

    def retry(self) -> int:
        dead = list(Job.objects.dead_letters().values_list("pk", flat=True)[:50])
        random.shuffle(dead)
        return len(Job.objects.retry(dead, runs=50).revived)

    def prune(self) -> int:
        return Job.objects.prune(Status.CANCELLED, older_than=timedelta(), limit=20)

    def run(self, verb: str) -> None:
        try:
            while time.monotonic() < self.end:
                try:
                    count = getattr(self, verb)()
                    self.done[verb] = self.done.get(verb, 0) + count
                except OperationalError as error:
                    if "deadlock detected" not in str(error):
                        raise
                    self.deadlocks += 1
        finally:
            connection.close()


def new_jobs(count: int) -> list[NewJob]:
    """Leases of 100 ms, so that they run out under their holders' hands."""
    return [NewJob(task="tests.add", max_attempts=500, lease=timedelta(milliseconds=100))] * count


@override_settings(PULSE={"RETRY_BACKOFF_CAP": 0.01})
def test_no_order_of_verbs_deadlocks() -> None:
    Job.objects.enqueue_many(new_jobs(JOBS))
    logged, counted = log_size(), deadlocks_counted()
    torture = Torture()
    verbs = ["claim", "beat", "beat", "settle", "settle", "reap", "retry", "cancel", "complete", "prune"]
    gate = threading.Barrier(len(verbs))

    def start(verb: str) -> None:
        gate.wait()
        torture.run(verb)

    with ThreadPoolExecutor(len(verbs)) as pool:
        list(pool.map(start, verbs))

    assert torture.deadlocks == 0
    assert deadlocks_counted() == counted
    assert "deadlock detected" not in log_since(logged)
    # A torture in which nothing happened proves nothing.
    assert min(torture.done.get(verb, 0) for verb in verbs) > 0, torture.done
    assert min(torture.done[verb] for verb in ("claim", "beat", "settle", "reap")) > 100, torture.done
    # And every run that ended has one row: nothing was ended twice.
    running = {(row.pk, row.attempts) for row in Job.objects.running()}
    kept = set(Job.objects.values_list("pk", flat=True))
    ended = {(lease.job_id, lease.attempt) for lease in torture.leases if lease.job_id in kept} - running
    assert {(row.job_id, row.number) for row in Attempt.objects.filter(job_id__in=kept)} == ended


def deadlocks_counted() -> int:
    sql("SELECT pg_stat_force_next_flush()")
    [(count,)] = sql("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
    return int(count)


def server_log() -> Path | None:
    """The log of the server that testproject started; somebody else's server has only its counter to ask."""
    return None if "DATABASE_URL" in os.environ else log_file()


def log_size() -> int:
    return log.stat().st_size if (log := server_log()) else 0


def log_since(size: int) -> str:
    if not (log := server_log()):
        return ""
    with log.open(errors="replace") as lines:
        lines.seek(size)
        return lines.read()
