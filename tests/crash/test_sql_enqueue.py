"""A worker is started, and from then on SQL can enqueue the tasks of its code: it finds the jobs by its poll."""

from __future__ import annotations

import pytest

from pulse_django.models import DeclaredTask, Job
from tests.crash.workers import Workers, wait_for, wait_until
from tests.sql_enqueue.steps import pulse_enqueue

pytestmark = [pytest.mark.usefixtures("pulse_db"), pytest.mark.one_server("Citus has no such function")]


def test_a_worker_writes_down_its_tasks_and_runs_what_sql_enqueues(workers: Workers) -> None:
    workers.ready()
    wait_until(lambda: DeclaredTask.objects.filter(name="tests.worker.handlers.naps").exists())
    job_id = pulse_enqueue("tests.worker.handlers.naps", [0])
    wait_for("COMPLETED", job_id)
    assert Job.objects.get().result == "slept"
