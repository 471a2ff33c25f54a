"""``at_most_once=True``: a handler that was called is not called again, whatever ends the run."""

from __future__ import annotations

import os
import signal

import pytest

from pulse_django import api
from pulse_django.models import Job
from pulse_django.queue.words.decisions import DeadLetter
from pulse_django.queue.words.options import ClaimedOptions
from pulse_django.queue.words.states import Status
from pulse_django.run.run import Performed, Run
from pulse_django.worker.channel import Channel
from pulse_django.worker.executors.processes import Processes
from tests.crash.processes import through
from tests.crash.workers import LONG_LEASE, Workers, outcomes, wait_for, wait_until
from tests.proxy import BlackHole
from tests.queue.steps import expire
from tests.rival import Rival
from tests.worker import handlers
from tests.worker.test_shared_leases import claim

pytestmark = pytest.mark.usefixtures("pulse_db")

WAITING, SHORT = 5, 60


def begun(workers: Workers) -> int:
    """Enqueue a job and others around it. Return its id once its handler was called and those before it ended."""
    for _ in range(SHORT):  # so that jobs prove short, and more would be claimed
        handlers.writes_a_line.using(priority=9).enqueue()
    job_id = int(handlers.naps_once.using(priority=5).enqueue(60).id)
    for _ in range(WAITING):
        handlers.naps_once.enqueue(0)
    wait_until(lambda: bool(workers.trace.of(job_id, "begin")))
    wait_until(lambda: Job.objects.filter(status=Status.COMPLETED).count() == SHORT)
    return job_id


def check(workers: Workers, job_id: int, outcome: str) -> None:
    """All others run, each once, and this one when an operator says so."""
    wait_for(Status.DEAD_LETTERED, job_id)
    assert outcomes(job_id) == [outcome]
    Job.objects.filter(pk=job_id).update(args=[0])
    api.retry(job_id)
    workers.start()
    wait_until(lambda: not Job.objects.exclude(status=Status.COMPLETED).exists())
    assert workers.trace.count("begin").pop(job_id) == 2
    begins = workers.trace.count("begin")
    begins.pop(job_id)
    assert set(begins.values()) == {1}


def test_the_child_is_killed(workers: Workers) -> None:
    worker = workers.ready("--concurrency", "1", settings=LONG_LEASE)
    job_id = begun(workers)
    os.kill(worker.child(), signal.SIGKILL)
    check(workers, job_id, "WORKER_LOST")


def test_all_processes_are_killed(workers: Workers) -> None:
    """Nothing was claimed ahead: nobody could tell what had begun."""
    worker = workers.ready("--concurrency", "1")
    job_id = begun(workers)
    worker.kill()
    assert Job.objects.filter(status=Status.RUNNING).count() == 1
    workers.start()
    check(workers, job_id, "WORKER_LOST")


@pytest.mark.parametrize("is_locked", [False, True])
def test_the_grace_ends(workers: Workers, rival: Rival, is_locked: bool) -> None:
    worker = workers.ready("--concurrency", "1", "--shutdown-grace", "0.5", settings=LONG_LEASE)
    job_id = begun(workers)
    rival.begin()
    if is_locked:
        rival.lock_row(job_id)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    rival.rollback()
    # Whether a slow machine or a lock kept the job from being returned: its worker says so, and its lease expires.
    is_left = worker.says("could not return all jobs to the queue in time")
    assert is_left or not is_locked
    if is_left:
        expire(Job.objects.get(pk=job_id))
        Job.objects.reap()
    check(workers, job_id, "WORKER_LOST" if is_left else "RELEASED")


def test_the_database_is_away(workers: Workers, proxy: BlackHole) -> None:
    workers.ready("--concurrency", "1", env=through(proxy))
    job_id = begun(workers)
    proxy.swallow()
    workers.start()
    check(workers, job_id, "WORKER_LOST")


def test_the_time_limit_passes(workers: Workers) -> None:
    workers.ready("--concurrency", "1", settings=LONG_LEASE)
    job_id = int(handlers.naps_once.using(timeout=0.3).enqueue(60).id)
    for _ in range(WAITING):
        handlers.naps_once.enqueue(0)
    check(workers, job_id, "TIMED_OUT")


def test_the_fork_server_dies_before_it_says_that_a_process_was_born() -> None:
    """The process may have been born all the same, and may have read what it is to run."""
    ours, theirs = Channel.pair()
    over: list[Performed | None] = []
    processes = Processes(1, lambda run: True, lambda run, performed: over.append(performed), ours)
    processes.submit([Run(claim()._replace(options=ClaimedOptions(max_lost_workers=0)), alias="default")])
    fork_server = Channel(theirs)
    wait_until(fork_server.receive)
    fork_server.close()
    wait_until(lambda: over)
    [performed] = over
    assert performed is not None
    assert performed.report is not None
    assert isinstance(performed.report.decision, DeadLetter)
