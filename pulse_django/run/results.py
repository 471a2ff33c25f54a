"""A job as Django's ``TaskResult``."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, TypeVar

from django.conf import settings
from django.utils import timezone

from pulse_django import conf
from pulse_django.exceptions import RunLost, RunStalled, RunTimedOut, UnknownTask
from pulse_django.models import Attempt, Job
from pulse_django.queue.enqueue import Added
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.options import JOB_OPTIONS
from pulse_django.queue.words.outcomes import Failed, Outcome, OutcomeName, Succeeded
from pulse_django.queue.words.retry_policies import dotted_path
from pulse_django.queue.words.states import Status
from pulse_django.shards.placement import has_several_shards, routers_alias

from .codec import codec
from .registry import Task, TaskError, TaskResult, TaskResultStatus, changed

T = TypeVar("T")
# A job's first instants are two readings of the server's clock in one statement.
A_MOMENT = timedelta(seconds=1)

_STATUS = {
    **dict.fromkeys((Status.WAITING, Status.PENDING, Status.RETRYING), TaskResultStatus.READY),
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    **dict.fromkeys((Status.DEAD_LETTERED, Status.CANCELLED), TaskResultStatus.FAILED),
}
# Runs that ended without an exception of their handler's, and what stands for it in a result.
_STAND_INS = {
    OutcomeName.WORKER_LOST: RunLost,
    OutcomeName.TIMED_OUT: RunTimedOut,
    OutcomeName.STALLED: RunStalled,
    OutcomeName.RELEASED: UnknownTask,
}


class PulseTaskResult(TaskResult):
    """Django's result with a repr that shows neither arguments nor the return value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}(task={self.task.module_path}, id={self.id!r}, status={self.status})"


def as_enqueued(task: Task, job: Job) -> Task:
    """Return a task with the options that this job has: what ``using()`` said, and what operators changed since."""
    fleet = conf.current()
    # A retry has an instant of its own.
    is_first = job.attempts <= 1 and not job.refunds and job.status != Status.RETRYING
    waits = is_first and job.next_run_at - job.created_at > A_MOMENT
    return _with_options(
        task,
        queue_name=job.queue,
        priority=job.priority,
        run_after=job.next_run_at if waits else None,
        database=job._state.db if has_several_shards() else None,
        **{
            one.name: _own(task, one.name, getattr(job, one.column), getattr(fleet, one.setting_at_enqueue, None))
            for one in JOB_OPTIONS
        },
    )


def _as_claimed(task: Task, claim: Claim) -> Task:
    fleet = conf.current()
    return _with_options(
        task,
        queue_name=claim.queue,
        priority=claim.priority,
        max_attempts=_own(task, "max_attempts", claim.max_attempts, fleet.max_attempts),
        lease=_own(task, "lease", claim.ttl, fleet.lease_ttl),
        **claim.options._asdict(),
    )


def _own(task: Task, option: str, value: T, fleets: T) -> T | None:
    """What a job has because its task said nothing is the fleet's."""
    return None if value == fleets and getattr(task, option, None) is None else value


def _with_options(task: Task, **options: Any) -> Task:
    missing = object()
    changes = {name: value for name, value in options.items() if getattr(task, name, missing) not in (value, missing)}
    return changed(task, changes) if changes else task


def result_of(job: Job, task: Task, *, decrypt: bool = True) -> TaskResult:
    """Build the result of a job and its ended runs; without ``decrypt``, with neither arguments nor return value."""
    ledger = list(job.ledger.using(job._state.db).order_by("number")) if job.attempts else []
    workers = [entry.worker for entry in ledger]
    args, kwargs = ([], {}) if not decrypt else codec().arguments_of(job) if job.sensitive else (job.args, job.kwargs)
    if job.locked_by:
        workers.append(job.locked_by)
    result = PulseTaskResult(
        task=task,
        id=str(job.pk),
        status=_STATUS[Status(job.status)],
        enqueued_at=job.created_at,
        started_at=ledger[0].started_at if ledger else job.started_at,
        finished_at=job.finished_at,
        last_attempted_at=job.started_at,
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=list(_errors(ledger)),
        worker_ids=workers,
    )
    value = codec().value_of(job, RESULT) if decrypt and job.result is not None else None
    object.__setattr__(result, "_return_value", value)  # as Django's own backends do: the class is frozen
    return result


def result_of_new(added: Added, task: Task) -> TaskResult:
    """Build the result of a job that was just added. It is not encrypted."""
    return PulseTaskResult(
        task=task,
        id=str(added.id),
        status=_STATUS[Status(added.values.get("status", Status.PENDING))],
        enqueued_at=added.created_at,
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=added.args,
        kwargs=added.kwargs,
        backend=task.backend,
        errors=[],
        worker_ids=[],
    )


def result_of_run(
    claim: Claim, task: Task, args: list[Any], kwargs: dict[str, Any], alias: str | None = None
) -> TaskResult:
    """Build the result of a job that is running, from what its claim brought. Only a repeated run asks for more."""
    ledger: list[Attempt] = []
    if claim.attempt > 1:
        ledger += Attempt.objects.using(alias or routers_alias()).filter(job=claim.job_id).order_by("number")
    return PulseTaskResult(
        task=_as_claimed(task, claim),
        id=str(claim.job_id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=_as_django_reads(claim.created_at),
        started_at=ledger[0].started_at if ledger else _as_django_reads(claim.started_at),
        finished_at=None,
        last_attempted_at=_as_django_reads(claim.started_at),
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=list(_errors(ledger)),
        worker_ids=[*(entry.worker for entry in ledger), claim.lease.holder],
    )


def finished(result: TaskResult, status: Status, outcome: Outcome, begun_at: float | None) -> TaskResult:
    """Return the result of a run that has come to its end, without asking the database again.

    The instant is the server's of the claim plus what this host measured since the handler began.
    """
    took = timedelta() if begun_at is None else timedelta(seconds=time.monotonic() - begun_at)
    assert result.last_attempted_at is not None  # noqa: S101 - for the type checker: it is running
    errors = list(result.errors)
    if isinstance(outcome, Failed):
        errors.append(TaskError(exception_class_path=outcome.error.error_class, traceback=outcome.error.traceback))
    elif stand_in := _STAND_INS.get(outcome.name):
        errors.append(TaskError(exception_class_path=dotted_path(stand_in), traceback=getattr(outcome, "reason", "")))
    value = json.loads(outcome.result) if isinstance(outcome, Succeeded) and outcome.result is not None else None
    finished_at = result.last_attempted_at + took
    news = {"status": _STATUS[status], "finished_at": finished_at, "errors": errors, "_return_value": value}
    for name, new in news.items():
        object.__setattr__(result, name, new)  # as Django's own backends do: the class is frozen
    return result


def _as_django_reads(instant: datetime) -> datetime:
    """Without USE_TZ the instants that Django reads from a database are naive."""
    return instant if settings.USE_TZ else timezone.make_naive(instant, timezone.get_default_timezone())


def _errors(ledger: Iterable[Attempt]) -> Iterable[TaskError]:
    for entry in ledger:
        if entry.error_class:
            yield TaskError(exception_class_path=entry.error_class, traceback=entry.traceback)
        elif (stand_in := _STAND_INS.get(OutcomeName(entry.outcome))) and entry.message:
            yield TaskError(exception_class_path=dotted_path(stand_in), traceback=entry.traceback or entry.message)
