"""The way of a job through the code: ``make walk`` prints it, and it may not become longer.

A real worker walks each route until two walks are alike. A route counts what is called for the job alone: what
loops do beside it, and what happens once in a process, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import unified_diff
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from pulse_django import Workflow
from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from testproject.harness.processes import wait_until
from tests.crash.workers import Workers
from tests.factories import make_job, now
from tests.faults import all_faults
from tests.walk.route import Calls, Route, Stage
from tests.walk.traced import FOLDER, Recorder, limited, no_op

CLAIM = Stage("A worker claims it", "Claimer.run_once", "InFlight.take")
ROUTES = {
    "a no-op job, from enqueue() to COMPLETED": (
        Stage("A project enqueues it", "PulseBackend.enqueue"),
        CLAIM,
        Stage("A thread of the worker begins", "Dispatcher.begin"),
        Stage("It calls the handler", "Threads._perform"),
        Stage("It hands over how the run ended", "Dispatcher.done"),
        Stage("Another thread reports it", "Reporter.run_once", "Reporter._conclude"),
        Stage("A third one logs it, and sends signals", "RunEvents.run_once", "_log_completed"),
    ),
    "an expired lease": (Stage("A watchdog ends the run", "Watchdog._reap", "Reaped.ending"),),
    "a limited job is claimed": (CLAIM,),
    "a dependent job is released": (Stage("A worker frees what waited", "Reporter._resolve", "wake_workers"),),
    "Retry, on the page of a job": (Stage("The admin retries it", "JobAdmin.act_view"),),
}


class Ceiling(NamedTuple):
    """What a route may take at most. Lower it when it becomes shorter."""

    files: int
    functions: int
    hand_overs: int
    upward: int


CEILINGS = dict(
    zip(
        ROUTES,
        (
            Ceiling(37, 211, 126, 3),
            Ceiling(19, 48, 36, 1),
            Ceiling(23, 125, 79, 4),  # 71 if it is quick: leases that were counted 0.2 s ago are not counted anew
            Ceiling(11, 30, 28, 3),
            Ceiling(18, 43, 34, 0),
        ),
        strict=True,
    )
)
MOST_WALKS = 4
SETTINGS = {
    "LEASE_TTL": 3,
    "HEARTBEAT_INTERVAL": 1,
    "WATCHDOG_INTERVAL": 2,
    "POLL_INTERVAL": 60,
    "TASK_MODULES": ["tests.walk.traced"],
}


def enqueue_plain() -> None:
    no_op.enqueue()


def enqueue_limited() -> None:
    limited.enqueue(1)


def enqueue_dependent() -> None:
    workflow = Workflow("two")
    workflow.add("first", no_op.prepare())
    workflow.add("second", no_op.prepare(), needs=["first"])
    workflow.enqueue()


def lose_a_worker() -> None:
    make_job(Status.RUNNING, lease_until=now(), max_attempts=1, queue="elsewhere")


def retry(client: Client) -> None:
    job = make_job(Status.DEAD_LETTERED, queue="elsewhere")
    form = {"retry-attempts": job.attempts, "retry-runs": 1}
    address = reverse("admin:pulse_django_job_act", args=[job.pk, "retry"])
    assert client.post(address, form).status_code == 302
    assert Job.objects.get(pk=job.pk).status == Status.PENDING


def walked_twice_alike(walk: Callable[[], Route]) -> Route:
    """Return a route that was seen twice. On a busy machine a claimer looks once more now and then."""
    routes = [walk(), walk()]
    while routes[-1].calls() not in [one.calls() for one in routes[:-1]]:
        difference = "\n".join(unified_diff(routes[-2].calls(), routes[-1].calls(), n=2, lineterm=""))
        assert len(routes) < MOST_WALKS, difference
        routes.append(walk())
    return routes[-1]


@pytest.fixture
def operator(pulse_db: None) -> Iterator[Client]:
    user, client = User.objects.create_superuser("operator"), Client()
    client.force_login(user)
    yield client
    user.delete()


def test_routes_are_short_and_always_the_same(workers: Workers, operator: Client, tmp_path: Path) -> None:
    folder = tmp_path / "calls"
    folder.mkdir()
    worker = workers.start(
        "--processes", "1", "--queues", "default", settings=SETTINGS, env={FOLDER: str(folder), "DEBUG": "0"}
    )
    worker.wait_until_ready().wait_until_it_says("Listening for wake-ups")
    steps = dict(
        zip(
            ROUTES,
            (enqueue_plain, lose_a_worker, enqueue_limited, enqueue_dependent, partial(retry, operator)),
            strict=True,
        )
    )

    calls = Calls(folder)

    def walked(name: str) -> Route:
        calls.forget()
        with Recorder(folder):
            steps[name]()
        found: list[Route | None] = []
        wait_until(
            lambda: found.append(calls.route(ROUTES[name])) or found[-1],
            lambda: f"{name}: a stage is missing\n{worker.log_end}",
        )
        wait_until(lambda: not Job.objects.filter(queue="default", finished_at=None).exists(), "a job did not end")
        route = found[-1]
        assert route is not None
        return route

    for name in ROUTES:
        walked(name)  # what happens once in a process
    with all_faults() as about:
        for name in ROUTES:
            with about(name):
                found = walked_twice_alike(lambda: walked(name))  # noqa: B023 - called at once
                print(f"\n{name}: {found}\n", *found.lines(), sep="\n")  # noqa: T201 - `make walk` shows it
                ceiling = CEILINGS[name]
                assert len(found.files) <= ceiling.files, found.files
                assert len(found.functions) <= ceiling.functions
                assert len(found.hand_overs) <= ceiling.hand_overs
                assert len(found.upward) <= ceiling.upward, found.upward
