"""On Citus, a worker serves a schema while a node that does not have it is away."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from django.db.models import Max, Min

from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from tests import citus
from tests.crash.workers import Workers, wait_until
from tests.database import empty_tables

pytestmark = pytest.mark.skipif(
    not citus.may_stop_nodes(), reason=f"needs a cluster of Citus that may be stopped: make citus, with {citus.STOPPER}"
)
JOBS = 3_000
ROUNDS = 3


def drained(workers: Workers) -> float:
    """Let a worker complete jobs, and judge them. Return how many a second."""
    empty_tables()
    Job.objects.enqueue_many([NewJob(task="thread.succeeds", args=[1])] * JOBS)
    ids = set(Job.objects.values_list("pk", flat=True))
    worker = workers.ready("--processes", "1", "--concurrency", "8", settings={"LEASE_TTL": 30})
    wait_until(lambda: not Job.objects.exclude(status=Status.COMPLETED).exists(), patience=90)
    worker.stop()
    runs = workers.trace.count("ran")
    assert {job_id: runs[job_id] for job_id in ids} == dict.fromkeys(ids, 1), "each job ran once"
    span = Job.objects.aggregate(first=Min("started_at"), last=Max("finished_at"))
    return JOBS / (span["last"] - span["first"]).total_seconds()


def test_a_node_that_is_away_takes_nothing_from_the_others(workers: Workers) -> None:
    """The best of some rounds, because other work on the machine only makes it slower."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(ROUNDS):
        for is_away in rates:
            with citus.another_node_stopped() if is_away else nullcontext():
                rates[is_away].append(drained(workers))
    assert max(rates[True]) >= 0.9 * max(rates[False]), rates
