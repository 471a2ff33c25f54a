"""Run a handler, let its worker die right before its report, run it again, and compare with one clean run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from pulse_django.identity import Identity
from pulse_django.leases import Claim
from pulse_django.masking import MASK, hides_result
from pulse_django.models import Job
from pulse_django.performing import Performed, perform
from pulse_django.runs import Run, running
from pulse_django.states import Status

from .clock import expire_lease, jump_to_next_run
from .databases import committing, rolled_back
from .drain import Ran, beat, claim_job, reported
from .jobs import fresh
from .rows import Rows, rows_of

if TYPE_CHECKING:
    from pulse_django.taskapi import Task


def assert_idempotent(task: Task, /, *args: Any, ignore: Collection[str] = (), **kwargs: Any) -> None:
    """Fail, naming the rows that differ, if a run that is repeated after a crash leaves another database than one run.

    Everything happens in transactions that are rolled back, one on each database that the test may use. Callbacks of
    ``on_commit`` are called when the handler has ended, and their effects count.

    Keys that the database chose, and fields that are set by ``auto_now``, are not compared; name others in ``ignore``
    as "app.Model.field", or "result" for what the handler returns. Jobs that the handler enqueues are compared by task,
    arguments, queue and key.
    """
    with rolled_back() as aliases:
        result = _run_cleanly(task, args, kwargs, aliases)
        once = rows_of(aliases, ignore)
    with rolled_back() as aliases:
        repeated_result = _run_with_a_crash(task, args, kwargs, aliases)
        twice = rows_of(aliases, ignore)
    if result != repeated_result and "result" not in ignore:
        one, other = (MASK, MASK) if hides_result(task, None) else (repr(result), repr(repeated_result))
        raise AssertionError(f"{task.module_path} is not idempotent. It returns {one}, repeated after a crash {other}.")
    if once != twice:
        raise AssertionError(_difference(task, once, twice))


def _run_cleanly(task: Task, args: Any, kwargs: Any, aliases: Sequence[str]) -> Any:
    claim = claim_job(_rehearsed(task).enqueue(*args, **kwargs))
    return _completed(reported(_performed(claim, aliases)), "A clean run")


def _run_with_a_crash(task: Task, args: Any, kwargs: Any, aliases: Sequence[str]) -> Any:
    result = _rehearsed(task).enqueue(*args, **kwargs)
    [claim] = Job.objects.claim_these(Identity("crashing"), [int(result.id)])
    performed = _performed(claim, aliases)
    if performed.run.completed:
        # Its report was part of its own transaction: there is no moment between the two to die in.
        return fresh(claim.job_id).result
    expire_lease(claim.job_id)
    Job.objects.reap()
    jump_to_next_run(claim.job_id)
    repeated = reported(_performed(claim_job(claim.job_id), aliases))
    return _completed(repeated, "A run repeated after a crash")


def _performed(claim: Claim, aliases: Sequence[str]) -> Performed:
    """Call the handler, and then what waits for the commits that the test's transactions keep from happening."""
    run = Run(claim, beat=beat)
    with running(run), committing(aliases):  # what the callbacks enqueue are children of this job
        return perform(run)


def _rehearsed(task: Task) -> Task:
    """A task that may have one attempt only still needs two for a rehearsal."""
    if (getattr(task, "max_attempts", None) or 2) >= 2:
        return task
    rehearsed: Task = task.using(max_attempts=2)  # type: ignore[call-arg]  # only ours have the option
    return rehearsed


def _completed(ran: Ran, which: str) -> Any:
    job = fresh(ran.job_id)
    if ran.status != Status.COMPLETED:
        raise AssertionError(f"{which} of {ran.task} did not complete: {job.last_error or job.cancel_reason}")
    return job.result


def _difference(task: Task, once: Rows, twice: Rows) -> str:
    lines = [f"{task.module_path} is not idempotent. A run repeated after a crash leaves, beside one clean run:"]
    lines += [f"  + {count} x {label} {dict(row)}" for (label, row), count in (twice - once).items()]
    lines += [f"  - {count} x {label} {dict(row)}" for (label, row), count in (once - twice).items()]
    return "\n".join(lines)
