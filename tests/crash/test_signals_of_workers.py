"""The signals of a worker's own life: its processes begin, it is ready, it stops."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from pulse_django.queue.words.states import Status
from tests.crash.workers import Workers, wait_for, wait_until
from tests.worker.handlers import registered

pytestmark = pytest.mark.usefixtures("pulse_db")

MODULES: dict[str, Any] = {"TASK_MODULES": ["tests.worker.handlers", "tests.worker.receivers_of_workers"]}


def heard(workers: Workers, name: str) -> list[dict[str, Any]]:
    return [line for line in workers.trace.lines() if line["what"] == name]


def test_a_project_hears_that_processes_begin_and_the_worker_is_ready_and_stops(workers: Workers) -> None:
    job = registered("thread.succeeds").enqueue(1).id
    arguments = ("--name", "w", "--processes", "2", "--concurrency", "3", "--queues", "default,mail")
    worker = workers.ready(*arguments, settings=MODULES)
    wait_until(lambda: heard(workers, "worker_ready"))
    wait_for(Status.COMPLETED, job)
    facts = {"name": "w", "queues": ["default", "mail"], "processes": 2, "concurrency": 3, "using": ["default"]}
    children, [ready] = heard(workers, "child_started"), heard(workers, "worker_ready")
    assert sorted(one["facts"]["number"] for one in children) == [1, 2]
    assert {one["pid"] for one in children} == set(worker.children())
    for one in children:
        assert one["facts"] == facts | {"number": one["facts"]["number"]}
        assert one["is_main"]
        assert one["claims"] == []  # nothing in the process claims yet
        assert one["at"] < ready["at"]
    assert (ready["facts"], ready["pid"], ready["sender"], ready["jobs"]) == (facts, worker.pid, "Job", 1)
    assert heard(workers, "worker_stopping") == []
    worker.signal(signal.SIGTERM)
    worker.expect_exit()
    [stopping] = heard(workers, "worker_stopping")
    assert (stopping["facts"], stopping["pid"]) == (facts, worker.pid)
    assert "a receiver exits" in worker.log


def test_a_burst_that_is_over_is_a_stop(workers: Workers) -> None:
    workers.start("--burst", settings=MODULES).expect_exit()
    [stopping] = heard(workers, "worker_stopping")
    assert stopping["facts"]["queues"] is None


def test_a_process_that_replaces_another_begins_as_well(workers: Workers) -> None:
    workers.ready("--max-jobs", "1", settings=MODULES)
    wait_for(Status.COMPLETED, registered("thread.succeeds").enqueue(1).id)
    wait_until(lambda: len(heard(workers, "child_started")) == 2)
    assert len(heard(workers, "worker_ready")) == 1


@pytest.mark.parametrize("hangs", ["worker_ready", "worker_stopping"])
def test_a_receiver_that_hangs_holds_up_no_stop(workers: Workers, hangs: str) -> None:
    worker = workers.ready("--shutdown-grace", "1", settings=MODULES, env={"PULSE_HANGS": hangs})
    wait_until(lambda: heard(workers, "worker_ready"))
    wait_for(Status.COMPLETED, registered("thread.succeeds").enqueue(1).id)
    worker.signal(signal.SIGTERM)
    worker.expect_exit()
    assert heard(workers, "worker_stopping")
