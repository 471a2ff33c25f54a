"""Run a handler, let its worker die right before its report, run it again, and compare with one clean run."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from pulse_django.execution.encryption import value_of
from pulse_django.execution.masking import MASK, hides_result
from pulse_django.models import Job
from pulse_django.words.masks import RESULT
from pulse_django.words.states import Status

from .database_rows import MaskedValues, Rows, jobs_in, rows_of
from .databases import rolled_back
from .drain import Ran, claimed, expire_lease, fresh, jump_to_next_run, performed, reported

if TYPE_CHECKING:
    from pulse_django.execution.registry import Task, TaskResult


def assert_idempotent(task: Task, /, *args: Any, ignore: Collection[str] = (), **kwargs: Any) -> None:
    """Fail, naming the rows that differ, if a run that is repeated after a crash leaves another database than one run.

    Everything happens in transactions that are rolled back, one on each database that the test may use. Callbacks of
    ``on_commit`` are called when the handler has ended, and their effects count.

    Keys that the database chose, and fields that are set by ``auto_now``, are not compared; name others in ``ignore``
    as "app.Model.field", or "result" for what the handler returns. Jobs that the handler enqueues are compared by task,
    arguments, queue and key, on each of those databases.
    """
    rehearse = partial(_rehearse, lambda: _rehearsed(task).enqueue(*args, **kwargs), ignore, MaskedValues())
    result, once = rehearse(_run_cleanly)
    repeated_result, twice = rehearse(_run_with_a_crash)
    if result != repeated_result and "result" not in ignore:
        one, other = (MASK, MASK) if hides_result(task, None) else (repr(result), repr(repeated_result))
        raise AssertionError(f"{task.module_path} is not idempotent. It returns {one}, repeated after a crash {other}.")
    if once != twice:
        raise AssertionError(_difference(task, once, twice))


def _rehearse(
    enqueue: Callable[[], TaskResult],
    ignore: Collection[str],
    masked: MaskedValues,
    run: Callable[[TaskResult], Any],
) -> tuple[Any, Rows]:
    """Return what a job returns when it is run in this way, and the rows that are there afterwards. Undo all of it."""
    with rolled_back() as aliases:
        job = enqueue()
        before = jobs_in(aliases)  # this job is no effect of its handler
        result = run(job)
        return result, rows_of(aliases, ignore, before, masked)


def _run_cleanly(job: TaskResult) -> Any:
    return _completed(job, reported(performed(claimed(job))), "A clean run")


def _run_with_a_crash(job: TaskResult) -> Any:
    run = claimed(job, holder="crashing")
    if performed(run).run.completed:
        # Its report was part of its own transaction: there is no moment between the two to die in.
        return value_of(fresh(job), RESULT)
    expire_lease(job)
    Job.objects.db_manager(run.alias).reap()
    jump_to_next_run(job)
    return _completed(job, reported(performed(claimed(job))), "A run repeated after a crash")


def _rehearsed(task: Task) -> Task:
    """A task that may have one attempt only still needs two for a rehearsal."""
    if (getattr(task, "max_attempts", None) or 2) >= 2:
        return task
    rehearsed: Task = task.using(max_attempts=2)  # type: ignore[call-arg]  # only ours have the option
    return rehearsed


def _completed(result: TaskResult, ran: Ran, which: str) -> Any:
    job = fresh(result)
    if ran.status != Status.COMPLETED:
        raise AssertionError(f"{which} of {ran.task} did not complete: {job.last_error or job.cancel_reason}")
    return value_of(job, RESULT)


def _difference(task: Task, once: Rows, twice: Rows) -> str:
    lines = [f"{task.module_path} is not idempotent. A run repeated after a crash leaves, beside one clean run:"]
    lines += [f"  + {count} x {label} {dict(row)}" for (label, row), count in (twice - once).items()]
    lines += [f"  - {count} x {label} {dict(row)}" for (label, row), count in (once - twice).items()]
    return "\n".join(lines)
