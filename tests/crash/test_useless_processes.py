"""A process that lives and is of no use is noticed: what it holds is recovered, and it is replaced."""

from __future__ import annotations

import time
from typing import Any

import pytest

from pulse_django.models import Attempt, Job, Worker
from pulse_django.queue.words.states import Status
from testproject.shop import tasks
from tests.crash.workers import LONG_LEASE, Workers, is_alive, outcomes, wait_for, wait_until
from tests.factories import make_job
from tests.queue.steps import sql
from tests.worker import handlers, harmful_handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

MODULES: dict[str, Any] = {"TASK_MODULES": ["tests.worker.handlers", "tests.worker.harmful_handlers"]}
FAR = LONG_LEASE | MODULES  # no watchdog recovers anything within a test
TTL = 2.0
QUICKLY = 2.0  # seconds, for what a keeper recovers at once


class TestTheEventLoop:
    @pytest.mark.parametrize("kind", ["SystemExit", "KeyboardInterrupt"])
    def test_a_task_that_exits_fails_its_run_and_no_other(self, workers: Workers, kind: str) -> None:
        worker = workers.ready(settings=FAR)
        neighbour = harmful_handlers.naps_once_on_the_loop.enqueue(1).id
        wait_until(lambda: bool(workers.trace.of(neighbour, "begin")))
        exits = harmful_handlers.exits_in_a_gathered_coroutine.using(max_attempts=1).enqueue(kind).id
        wait_for(Status.DEAD_LETTERED, exits)
        after = harmful_handlers.naps_once_on_the_loop.enqueue(0).id
        wait_for(Status.COMPLETED, neighbour, after)
        assert kind in Job.objects.get(pk=exits).last_error
        assert outcomes(neighbour) == ["SUCCEEDED"]
        wait_until(lambda: worker.says(f"raised {kind}"), lambda: worker.log)

    def test_a_task_that_nothing_awaits_and_that_exits_is_logged(self, workers: Workers) -> None:
        worker = workers.ready(settings=FAR)
        job = harmful_handlers.leaves_a_task_that_exits.enqueue().id
        wait_for(Status.COMPLETED, job)
        assert Job.objects.get(pk=job).result == "done"
        wait_until(lambda: worker.says("raised SystemExit"), lambda: worker.log)

    def test_in_a_process_of_its_own_it_is_a_failure_and_no_lost_worker(self, workers: Workers) -> None:
        workers.ready(settings=FAR)
        name = "tests.worker.harmful_handlers.exits_in_a_gathered_coroutine"
        exits = make_job(task=name, args=["SystemExit"], losses=2, attempts=2, refunds=2, max_attempts=1).pk
        wait_for(Status.DEAD_LETTERED, exits)
        assert outcomes(exits) == ["FAILED"], "in a process of its own, for it lost its worker twice"


@pytest.mark.parametrize("thread", ["claims", "reports", "run-events", "log", "event-loop", "processes", "handler"])
def test_a_process_that_lost_a_thread_ends_and_what_it_held_is_recovered(workers: Workers, thread: str) -> None:
    worker = workers.ready("--concurrency", "3", settings=FAR)
    first = [
        handlers.writes_a_line.enqueue().id,
        harmful_handlers.naps_once_on_the_loop.enqueue(0).id,
        handlers.registered("process.succeeds").enqueue(1).id,
    ]
    wait_for(Status.COMPLETED, *first)
    held = [harmful_handlers.naps_once.enqueue(600).id, harmful_handlers.naps_once_on_the_loop.enqueue(600).id]
    wait_until(lambda: all(workers.trace.of(job, "begin") for job in held))
    child = worker.child()
    killer = harmful_handlers.kills_a_thread.enqueue(thread).id
    wait_until(lambda: not is_alive(child), lambda: worker.log)
    ended_at = time.monotonic()
    wait_until(lambda: all(outcomes(job)[:1] == ["WORKER_LOST"] for job in held), lambda: worker.log)
    assert time.monotonic() - ended_at < QUICKLY
    wait_for(Status.COMPLETED, *held, killer)
    wait_until(lambda: worker.says(f"its thread '{thread}"), lambda: worker.log)
    assert "its thread" in Attempt.objects.get(job=held[0], number=1).message


@pytest.mark.session("it ends connections by the names that they gave the server")
class TestAChildThatCannotReport:
    def run(self, workers: Workers, harm: Any, then: Any) -> tuple[Any, int, list[Any]]:
        """Have a handler do harm while seven others run; return the worker, the harmed child, and all jobs."""
        worker = workers.ready("--concurrency", "8", settings=MODULES | {"LEASE_TTL": TTL})
        child = worker.child()
        running = [harmful_handlers.naps_without_a_trace_of_its_end.enqueue(1.0).id for _ in range(6)]
        wait_until(lambda: workers.trace.count("begin").total() == 6)
        harmful = harm.enqueue().id
        then(workers, harmful)
        return worker, child, [*running, harmful]

    def cut_connections(self, workers: Workers, harmful: Any) -> None:
        wait_until(lambda: bool(workers.trace.of(harmful, "begin")))
        sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE (application_name LIKE 'pulse reports%%' OR application_name LIKE 'pulse claims%%')"
            " AND datname = current_database()"
        )

    @pytest.mark.parametrize(
        "harm", [harmful_handlers.leaks_descriptors, harmful_handlers.changes_the_settings], ids=lambda harm: harm.name
    )
    def test_its_results_are_kept_and_it_is_replaced(self, workers: Workers, harm: Any) -> None:
        worker, child, jobs = self.run(workers, harm, self.cut_connections)
        wait_for(Status.COMPLETED, *jobs, patience=TTL * 8), worker.log
        assert [outcomes(job) for job in jobs] == [["SUCCEEDED"]] * len(jobs), worker.log
        wait_until(lambda: not is_alive(child), lambda: worker.log)
        assert worker.says("replacing it")
        wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id)
        assert worker.child() != child

    def test_one_that_holds_nothing_and_cannot_claim_is_replaced_as_well(self, workers: Workers) -> None:
        worker = workers.ready(settings=MODULES | {"LEASE_TTL": TTL})
        child = worker.child()
        job = harmful_handlers.changes_the_settings.enqueue().id
        wait_for(Status.COMPLETED, job)
        self.cut_connections(workers, job)
        wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id, patience=TTL * 10)
        assert worker.child() != child


class TestTheKeeper:
    def test_a_thread_of_its_that_ended_is_started_again_and_shown(self, workers: Workers) -> None:
        worker = workers.ready(settings=MODULES, env={"PULSE_HARM": "keeper threads"})
        make_job(status=Status.RUNNING, expired=True)  # to be reaped: a receiver then kills all threads
        wait_until(lambda: worker.log.count("was restarted") >= 4, lambda: worker.log)
        job = harmful_handlers.naps_once.enqueue(2).id
        wait_for(Status.COMPLETED, job)
        assert outcomes(job) == ["SUCCEEDED"], "its lease was extended"
        wait_until(lambda: bool(Worker.objects.get().vitals["restarts"]))
        assert set(Worker.objects.get().vitals["restarts"]) == {"heartbeat", "recovery", "minutes", "watchdog"}
