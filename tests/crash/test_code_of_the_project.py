"""Code of the project that our threads call, and copies of our processes that it forks, change nothing about jobs."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from tests.crash.workers import LONG_LEASE, QUICK, Workers, outcomes, wait_for, wait_until
from tests.factories import make_job
from tests.worker import handlers, harmful_handlers
from tests.worker.handlers import EXECUTORS, registered

pytestmark = pytest.mark.usefixtures("pulse_db")

MODULES: dict[str, Any] = {"TASK_MODULES": ["tests.worker.handlers", "tests.worker.harmful_handlers"]}


class TestReceivers:
    """Each raises SystemExit, or a Discard of ours, before the one that listens."""

    def test_one_that_exits_ends_no_recovery(self, workers: Workers) -> None:
        workers.ready(settings=MODULES, env={"PULSE_HARM": "receivers"})
        for _ in range(2):  # the first must not be the watchdog's last
            job = make_job(status=Status.RUNNING, expired=True, task="thread.succeeds", args=[1]).pk
            wait_until(lambda job=job: bool(workers.trace.of(job, "heard job_reaped")))  # type: ignore[misc]
            wait_for(Status.COMPLETED, job)

    def test_one_that_exits_ends_no_run_and_no_report(self, workers: Workers) -> None:
        workers.ready(settings=MODULES, env={"PULSE_HARM": "receivers"})
        jobs = [registered(f"{executor}.succeeds").enqueue(1).id for executor in EXECUTORS for _ in range(3)]
        wait_for(Status.COMPLETED, *jobs)
        wait_until(lambda: set(workers.trace.count("heard job_finished")) == {int(job) for job in jobs})
        assert [outcomes(job) for job in jobs] == [["SUCCEEDED"]] * len(jobs)


class TestTheLog:
    def test_a_handler_that_closes_stderr_fails_no_other_job(self, workers: Workers) -> None:
        workers.ready("--concurrency", "1", settings=LONG_LEASE | MODULES)
        closes = harmful_handlers.closes_stderr.enqueue().id
        wait_for(Status.COMPLETED, closes)
        innocent = [handlers.naps.using(max_attempts=1).enqueue(0).id for _ in range(20)]
        wait_for(Status.COMPLETED, *innocent)

    def test_a_log_handler_that_raises_fails_nothing(self, workers: Workers) -> None:
        worker = workers.start(settings=MODULES, env={"PULSE_HARM": "raising log"})
        jobs = [registered(f"{executor}.succeeds").enqueue(1).id for executor in EXECUTORS for _ in range(3)]
        fails = registered("thread.raises").enqueue("ValueError").id
        wait_for(Status.COMPLETED, *jobs)
        wait_for(Status.DEAD_LETTERED, fails)
        reaped = make_job(status=Status.RUNNING, expired=True, task="thread.succeeds", args=[1]).pk
        wait_for(Status.COMPLETED, reaped)
        assert worker.exit_code is None

    def test_a_log_handler_that_hangs_holds_up_neither_beats_nor_recovery(self, workers: Workers) -> None:
        """As one does that sends mail, to a host that does not answer."""
        worker = workers.start("--concurrency", "2", settings=MODULES, env={"PULSE_HARM": "hanging log"})
        fails = registered("thread.raises").enqueue("ValueError").id
        wait_for(Status.DEAD_LETTERED, fails)
        reaped = make_job(status=Status.RUNNING, expired=True, task="thread.succeeds", args=[1]).pk
        wait_for(Status.COMPLETED, reaped)
        held = handlers.naps.enqueue(QUICK["LEASE_TTL"] * 2).id
        wait_for(Status.COMPLETED, held)
        assert outcomes(held) == ["SUCCEEDED"]
        assert worker.exit_code is None


class TestACopy:
    """A handler forks, and the child returns into our code, or goes on with its own."""

    @pytest.mark.parametrize("executor", EXECUTORS)
    @pytest.mark.parametrize("how", ["forks_and_returns", "forks_and_raises", "forks_and_naps"])
    def test_speaks_for_no_run(self, workers: Workers, executor: str, how: str) -> None:
        worker = workers.ready("--concurrency", "2", settings=LONG_LEASE | MODULES)
        jobs = [registered(f"{executor}.{how}").enqueue().id for _ in range(2)]
        wait_for(Status.COMPLETED, *jobs)
        assert [outcomes(job) for job in jobs] == [["SUCCEEDED"]] * 2
        assert list(Job.objects.filter(pk__in=jobs).values_list("result", flat=True)) == ["the parent's"] * 2
        after = registered(f"{executor}.succeeds").enqueue(1).id
        wait_for(Status.COMPLETED, after)
        assert worker.exit_code is None
        until = time.monotonic() + 5
        while len(worker.children()) > 1 and time.monotonic() < until:
            time.sleep(0.02)
        assert len(worker.children()) == 1, worker.log
