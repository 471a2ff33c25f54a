"""The smallest worker, as a real process with real signals."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from pulse_django.identity import Identity
from pulse_django.models import Attempt, Job
from pulse_django.newjob import NewJob
from pulse_django.runs import Run
from pulse_django.states import Status
from pulse_django.worker import Worker
from testproject.shop import tasks
from testproject.shop.models import Invoice, Line
from tests.crash.processes import ROOT, environment
from tests.rival import Rival
from tests.storage.steps import success

pytestmark = pytest.mark.usefixtures("pulse_db")

# Short, so that nobody waits long for a dead worker's lease.
QUICK = {"LEASE_TTL": 1.5, "HEARTBEAT_INTERVAL": 0.5, "WATCHDOG_INTERVAL": 0.3, "POLL_INTERVAL": 0.1}
PATIENCE = 30.0


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str, modules: Sequence[str] = ()) -> subprocess.Popen[str]:
        command = [sys.executable, "manage.py", "pulse_worker", *arguments]
        settings = environment(PULSE=json.dumps(QUICK | {"TASK_MODULES": list(modules)}))
        process = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=subprocess.DEVNULL, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, list(Job.objects.values("status", "attempts", "last_error"))
        time.sleep(0.05)


def status(job_id: int | str) -> str:
    return str(Job.objects.values_list("status", flat=True).get(pk=job_id))


def test_a_burst_runs_what_is_due_and_ends(start: Callable[..., subprocess.Popen[str]]) -> None:
    ids = [tasks.add.enqueue(n, n).id for n in range(3)]
    assert start("--burst").wait(PATIENCE) == 0
    assert [status(job_id) for job_id in ids] == [Status.COMPLETED] * 3


def test_a_task_survives_the_kill_of_its_worker(start: Callable[..., subprocess.Popen[str]]) -> None:
    result = tasks.sleep.enqueue(60)
    doomed = start()
    wait_until(lambda: status(result.id) == Status.RUNNING)
    Job.objects.filter(pk=result.id).update(args=[0])  # the next run need not take a minute
    doomed.kill()
    start()
    wait_until(lambda: status(result.id) == Status.COMPLETED)
    assert list(Attempt.objects.order_by("number").values_list("outcome", flat=True)) == ["WORKER_LOST", "SUCCEEDED"]


def test_a_job_longer_than_its_lease_is_left_to_its_worker(start: Callable[..., subprocess.Popen[str]]) -> None:
    result = tasks.sleep.enqueue(4)
    start("--queues", "default")
    start()  # another one, which reaps
    wait_until(lambda: status(result.id) == Status.COMPLETED)
    assert Attempt.objects.get().outcome == "SUCCEEDED"


def test_only_the_queues_asked_for_are_worked(start: Callable[..., subprocess.Popen[str]]) -> None:
    other = Job.objects.enqueue(NewJob(task="testproject.shop.tasks.add", args=[1, 2], queue="other"))
    mine = tasks.add.enqueue(1, 2)
    assert start("--burst", "--queues", "default,mail").wait(PATIENCE) == 0
    assert (status(mine.id), status(other.pk)) == (Status.COMPLETED, Status.PENDING)


def test_sigterm_lets_the_job_at_hand_finish(start: Callable[..., subprocess.Popen[str]]) -> None:
    result = tasks.sleep.enqueue(1)
    worker = start()
    wait_until(lambda: status(result.id) == Status.RUNNING)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(PATIENCE) == 0
    assert status(result.id) == Status.COMPLETED


def test_a_worker_whose_tasks_cannot_be_imported_does_not_start_and_claims_nothing() -> None:
    result = tasks.add.enqueue(1, 2)
    command = [sys.executable, "manage.py", "pulse_worker", "--burst"]
    broken = environment(PULSE='{"TASK_MODULES": ["there.is.no.such.module"]}')
    done = subprocess.run(command, cwd=ROOT, env=broken, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode != 0
    assert "there" in done.stderr
    assert Job.objects.values_list("status", "attempts").get(pk=result.id) == (Status.PENDING, 0)


@pytest.mark.parametrize(
    "vandal",
    [
        "leaves_a_transaction_open",
        "leaves_a_broken_transaction",
        "changes_the_search_path",
        "turns_autocommit_off",
        "closes_the_connection",
        "closes_the_socket",
        "forks_and_returns",
        "forks_a_child_that_uses_the_database",
    ],
)
def test_the_job_after_a_vandal_finds_everything_clean(
    start: Callable[..., subprocess.Popen[str]], vandal: str
) -> None:
    bad = Job.objects.enqueue(NewJob(task=f"tests.tasks.vandals.{vandal}", priority=1))
    good = tasks.make_invoice.enqueue(7)
    worker = start("--burst", modules=["tests.tasks.vandals"])
    assert worker.wait(PATIENCE) == 0
    assert (status(bad.pk), status(good.id)) == (Status.COMPLETED, Status.COMPLETED)
    assert Attempt.objects.filter(late_outcome="").count() == Attempt.objects.count() == 2
    Line.objects.all().delete()
    Invoice.objects.all().delete()


def test_a_worker_that_is_told_to_stop_reports_all_the_same_when_its_row_is_locked(rival: Rival) -> None:
    job = Job.objects.enqueue(NewJob(task="testproject.shop.tasks.add", args=[1, 2]))
    stopping = Worker(Identity("stopping"))
    stopping.stopping.set()
    [claim] = Job.objects.claim(stopping.identity)
    rival.lock_row(job.pk)  # as its own heartbeat does at times
    reporting = Rival()
    try:
        answer = reporting.start(stopping._settle, Run(claim), success(claim))
        assert Job.objects.settle([success(claim)], wait=False).skipped  # nobody can report now
        rival.rollback()
        assert answer.result(PATIENCE).accepted == {claim.lease: Status.COMPLETED}
    finally:
        reporting.close()
