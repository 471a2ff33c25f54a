"""An operator asks where a handler is, and its worker answers in its row."""

from __future__ import annotations

import pytest

from pulse_django.models import Worker
from tests.crash.test_children import _letters_that_take
from tests.crash.workers import LONG_LEASE, StartedWorker, Workers, wait_until
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")


def answer_about(job_id: int) -> str:
    row = Worker.objects.get()
    return row.stack if row.stack_of == job_id else ""


def asked(worker: StartedWorker, job_id: int) -> str:
    row = Worker.objects.get()
    assert Worker.objects.ask_stack(row.name, row.boot_id, job_id)
    wait_until(lambda: bool(answer_about(job_id)), lambda: worker.log)
    return answer_about(job_id)


@pytest.mark.parametrize("name", ["naps", "naps_apart", "naps_on_the_loop"])
def test_a_handler_says_where_it_is_and_goes_on(workers: Workers, name: str) -> None:
    worker = workers.ready(settings=LONG_LEASE)
    job = int(getattr(handlers, name).enqueue(60).id)
    wait_until(lambda: bool(workers.trace.of(job, "begin")), lambda: worker.log)
    stack = asked(worker, job)
    assert f"in {name}\n" in stack
    assert "handlers.py" in stack.splitlines()[0], "what calls the handler is not shown"
    assert Worker.objects.get().stack_wanted is None
    again = asked(worker, job)
    assert f"in {name}\n" in again, "it goes on"


def test_a_handler_that_holds_the_interpreter_says_where_it_is(workers: Workers) -> None:
    worker = workers.ready("--concurrency", "2", settings=LONG_LEASE)
    job = int(handlers.holds_the_interpreter.enqueue(_letters_that_take(60)).id)
    wait_until(lambda: Worker.objects.filter(in_flight=1).exists(), lambda: worker.log)
    # Before the handler holds the interpreter, its child answers by itself: ask again.
    wait_until(
        lambda: asked(worker, job).startswith("Its process does not answer: a handler holds the interpreter."),
        lambda: worker.log,
    )
    assert "in holds_the_interpreter\n" in answer_about(job)


def test_of_a_job_that_it_does_not_run_a_worker_says_so(workers: Workers) -> None:
    worker = workers.ready(settings=LONG_LEASE)
    assert asked(worker, 987_654_321) == "The job is not running in this worker any more."
