"""A worker as a real process: what it takes, what it leaves alone, and what becomes of its jobs when it is killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from pulse_django.models import Attempt, Job, Pause
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from testproject.shop import tasks
from testproject.shop.models import Invoice
from tests.crash.processes import database_url
from tests.crash.workers import Workers, outcomes, status, wait_for

pytestmark = pytest.mark.usefixtures("pulse_db")


def test_a_burst_runs_what_is_due_and_ends(workers: Workers) -> None:
    ids = [tasks.add.enqueue(n, n).id for n in range(3)] + [tasks.add_async.enqueue(1, 2).id]
    worker = workers.start("--burst")
    assert worker.wait() == 0
    assert [status(job_id) for job_id in ids] == [Status.COMPLETED] * 4


def test_a_burst_with_nothing_to_do_ends(workers: Workers) -> None:
    assert workers.start("--burst", "--processes", "2").wait() == 0


def test_a_task_survives_the_kill_of_its_worker(workers: Workers) -> None:
    result = tasks.sleep.enqueue(60)
    doomed = workers.start()
    wait_for(Status.RUNNING, result.id)
    Job.objects.filter(pk=result.id).update(args=[0])  # the next run need not take a minute
    doomed.kill()
    workers.start()
    wait_for(Status.COMPLETED, result.id)
    assert outcomes(result.id) == ["WORKER_LOST", "SUCCEEDED"]


def test_a_job_longer_than_its_lease_is_left_to_its_worker(workers: Workers) -> None:
    result = tasks.sleep.enqueue(3.5)
    workers.start("--queues", "default")
    workers.start("--queues", "other")  # which reaps all the same
    wait_for(Status.COMPLETED, result.id)
    assert outcomes(result.id) == ["SUCCEEDED"]


def test_only_the_queues_asked_for_are_worked_and_none_that_is_paused(workers: Workers) -> None:
    other, paused = (
        Job.objects.enqueue(NewJob(task="testproject.shop.tasks.add", args=[1, 2], queue=queue))
        for queue in ("other", "mail")
    )
    Pause.objects.pause(queue="mail")
    mine = tasks.add.enqueue(1, 2)
    assert workers.start("--burst", "--queues", "default,mail").wait() == 0
    assert [status(job_id) for job_id in (mine.id, other.pk, paused.pk)] == [
        Status.COMPLETED,
        Status.PENDING,
        Status.PENDING,
    ]


def test_sigterm_lets_the_job_at_hand_finish(workers: Workers) -> None:
    result = tasks.sleep.enqueue(1)
    worker = workers.ready()
    wait_for(Status.RUNNING, result.id)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert status(result.id) == Status.COMPLETED


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"TASK_MODULES": ["there.is.no.such.module"]}, "No module named 'there'"),
        ({"MIDDLEWARE": ["there.is.no.such"]}, "there.is.no.such"),
        ({"LEASE_TTL": 1, "HEARTBEAT_INTERVAL": 5}, "pulse_django.E005"),
        ({"NO_SUCH_SETTING": 1}, "pulse_django.E002"),
    ],
    ids=["an import that fails", "middleware that is not there", "a lease of less than two beats", "a typing error"],
)
def test_a_worker_that_is_not_in_order_does_not_start_and_claims_nothing(
    workers: Workers, settings: dict[str, object], said: str
) -> None:
    result = tasks.add.enqueue(1, 2)
    worker = workers.start("--burst", settings=settings)
    assert worker.wait() == 1
    assert worker.says(said)
    assert Job.objects.values_list("status", "attempts").get(pk=result.id) == (Status.PENDING, 0)


def test_a_worker_whose_database_is_away_says_so_in_a_line_and_ends(workers: Workers, tmp_path: Path) -> None:
    worker = workers.start(env={"DATABASE_URL": database_url(host=str(tmp_path))})
    assert worker.wait() == 1
    assert worker.says("The database cannot be queried")
    assert not worker.says("Traceback")
    assert len(worker.log.splitlines()) == 1, worker.log


VANDALS = [
    "leaves_a_transaction_open",
    "leaves_a_broken_transaction",
    "changes_the_search_path",
    "turns_autocommit_off",
    "closes_the_connection",
    "closes_the_socket",
    "forks_and_returns",
    "forks_a_child_that_uses_the_database",
]


@pytest.mark.session("what a handler does to its session stays with the pooler's")
@pytest.mark.parametrize("age", [0, 60], ids=["connections for one job", "connections that are kept"])
def test_the_job_after_a_vandal_finds_everything_clean(workers: Workers, age: int) -> None:
    """One slot, so one thread and its connections: a vandal, a good job, the next vandal, and so on."""
    bad, good = {}, {}
    for number, vandal in enumerate(VANDALS):
        bad[vandal] = Job.objects.enqueue(NewJob(task=f"tests.run.vandals.{vandal}", priority=100 - 2 * number)).pk
        invoice = NewJob(task="testproject.shop.tasks.make_invoice", args=[number], priority=99 - 2 * number)
        good[vandal] = Job.objects.enqueue(invoice).pk
    worker = workers.start(
        *("--burst", "--concurrency", "1"),
        settings={"TASK_MODULES": ["tests.run.vandals"]},
        env={"DATABASE_URL": database_url(conn_max_age=age)},
    )
    assert worker.wait() == 0
    for vandal in VANDALS:
        assert (vandal, status(bad[vandal]), status(good[vandal])) == (vandal, Status.COMPLETED, Status.COMPLETED)
    assert Attempt.objects.filter(late_outcome="").count() == Attempt.objects.count() == 2 * len(VANDALS)
    assert Invoice.objects.count() == len(VANDALS)
