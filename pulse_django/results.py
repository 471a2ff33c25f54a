"""A job as Django's ``TaskResult``."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TypeVar

from .exceptions import RunLost, RunStalled, RunTimedOut, UnknownTask
from .models import Attempt, Job
from .outcomes import OutcomeName
from .policies import dotted_path
from .states import Status
from .taskapi import Task, TaskError, TaskResult, TaskResultStatus

T = TypeVar("T")

_STATUS = {
    Status.PENDING: TaskResultStatus.READY,
    Status.RETRYING: TaskResultStatus.READY,
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    Status.DEAD_LETTERED: TaskResultStatus.FAILED,
    Status.CANCELLED: TaskResultStatus.FAILED,
}
# Runs that ended without an exception of their handler's, and what stands for it in a result.
_STAND_INS = {
    OutcomeName.WORKER_LOST: RunLost,
    OutcomeName.TIMED_OUT: RunTimedOut,
    OutcomeName.STALLED: RunStalled,
    OutcomeName.RELEASED: UnknownTask,
}


def result_of(job: Job, task: Task) -> TaskResult:
    """Build the result of a job and its ended runs."""
    ledger = list(job.ledger.using(job._state.db).order_by("number")) if job.attempts else []
    workers = [entry.worker for entry in ledger]
    if job.locked_by:
        workers.append(job.locked_by)
    result = TaskResult(
        task=task,
        id=str(job.pk),
        status=_STATUS[Status(job.status)],
        enqueued_at=job.created_at,
        started_at=ledger[0].started_at if ledger else job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.started_at,
        args=_as_stored(job.args),
        kwargs=_as_stored(job.kwargs),
        backend=task.backend,
        errors=list(_errors(ledger)),
        worker_ids=workers,
    )
    object.__setattr__(result, "_return_value", job.result)  # as Django's own backends do: the class is frozen
    return result


def _errors(ledger: Iterable[Attempt]) -> Iterable[TaskError]:
    for entry in ledger:
        if entry.error_class:
            yield TaskError(exception_class_path=entry.error_class, traceback=entry.traceback)
        elif (stand_in := _STAND_INS.get(OutcomeName(entry.outcome))) and entry.message:
            yield TaskError(exception_class_path=dotted_path(stand_in), traceback=entry.message)


def _as_stored(arguments: T) -> T:
    """As they will be read back, also right after enqueueing: number keys become text."""
    stored: T = json.loads(json.dumps(arguments))
    return stored
