"""A job as Django's ``TaskResult``."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from asgiref.sync import sync_to_async
from django.db import connections

from pulse_django import conf
from pulse_django.exceptions import CannotWait, InvalidPublicId, RunLost, RunStalled, RunTimedOut, UnknownTask
from pulse_django.models import Attempt
from pulse_django.queue.database.sql_functions import as_django_reads
from pulse_django.queue.database.transactions import is_in_callers_transaction
from pulse_django.queue.enqueue import Added
from pulse_django.queue.job import JobRow
from pulse_django.queue.words.display import shown
from pulse_django.queue.words.durations import WANTED, as_timedelta
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.options import JOB_OPTIONS
from pulse_django.queue.words.other_queues import OF_RESULTS, says_instead
from pulse_django.queue.words.outcomes import Failed, Outcome, OutcomeName, Succeeded
from pulse_django.queue.words.retry_policies import dotted_path
from pulse_django.queue.words.states import Status
from pulse_django.shards.placement import has_several_shards, locate, routers_alias
from pulse_django.signed_texts import read, sign

from .codec import codec
from .registry import Task, TaskError, TaskResult, TaskResultStatus, changed
from .run import current_run
from .waiting import watcher_of

T = TypeVar("T")
PUBLIC_ID = "pulse_django.public_id"
# ``created_at`` and ``next_run_at`` of a new job are two readings of the server's clock in one statement.
A_MOMENT = timedelta(seconds=1)

_STATUS = {
    **dict.fromkeys((Status.WAITING, Status.PENDING, Status.RETRYING), TaskResultStatus.READY),
    Status.RUNNING: TaskResultStatus.RUNNING,
    Status.COMPLETED: TaskResultStatus.SUCCESSFUL,
    **dict.fromkeys((Status.DEAD_LETTERED, Status.CANCELLED), TaskResultStatus.FAILED),
}
# Outcomes without an exception of the handler, and the exception that a result shows for them.
_STAND_INS = {
    OutcomeName.WORKER_LOST: RunLost,
    OutcomeName.TIMED_OUT: RunTimedOut,
    OutcomeName.STALLED: RunStalled,
    OutcomeName.RELEASED: UnknownTask,
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PulseTaskResult(TaskResult):
    """Django's result with the additions of Pulse. Its repr shows neither arguments nor the return value."""

    is_new: bool | None = field(default=None, compare=False)  # whether the call created the job; None: not from a call

    if not TYPE_CHECKING:
        __getattr__ = says_instead(OF_RESULTS)

    @property
    def public_id(self) -> str:
        """The id for public URLs. It is signed, so it cannot be guessed, and it does not change."""
        return sign(PUBLIC_ID, int(self.id))

    def wait(self, timeout: float | timedelta) -> Self:
        """Wait until the job has ended, and return this refreshed result. ``timeout`` is in seconds.

        Use it in scripts, tests and the shell. It raises ``TimeoutError`` after ``timeout``, and ``CannotWait`` inside
        ``atomic()`` and in a handler.
        """
        until = _until(timeout)
        while (alias := self._look_before(until, timeout)) is not None:
            with watcher_of(alias).watching(int(self.id)) as ended, suppress(TimeoutError):
                ended.result(until - time.monotonic())
        return self

    async def await_(self, timeout: float | timedelta) -> Self:
        """Do as ``wait()``, in async code."""
        until, look = _until(timeout), sync_to_async(self._look_before)
        while (alias := await look(until, timeout)) is not None:
            with watcher_of(alias).watching(int(self.id)) as ended, suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wrap_future(ended), until - time.monotonic())
        return self

    def _look_before(self, until: float, timeout: float | timedelta) -> str | None:
        """Refresh, and return the database of the job if it has not ended. Raise if a wait might never end."""
        if current_run() is not None:
            raise CannotWait(
                "a handler cannot wait for a result: all slots could wait for each other. Make the next job "
                "need the other one, or use context.wait_for()"
            )
        alias = locate(self.id).alias
        if is_in_callers_transaction(alias):
            raise CannotWait("a job that was enqueued inside atomic() begins after the commit: wait outside atomic()")
        is_late = time.monotonic() >= until
        self.refresh()
        if self.is_finished:
            return None
        if connections[alias].in_atomic_block:
            raise CannotWait("no worker sees the jobs of a TestCase: call pulse_django.testing.drain() first")
        if is_late:
            raise TimeoutError(f"job {self.id} was still {self.status} after {timeout}")
        return alias

    def __repr__(self) -> str:
        return f"{type(self).__name__}(task={self.task.module_path}, id={self.id!r}, status={self.status})"


def _until(timeout: float | timedelta) -> float:
    if not isinstance(duration := as_timedelta(timeout), timedelta):
        raise (ValueError if isinstance(timeout, float) else TypeError)(f"timeout: {timeout!r} is not {WANTED}.")
    return time.monotonic() + min(duration.total_seconds(), threading.TIMEOUT_MAX / 2)


def job_id_of_public_id(public_id: str) -> int:
    """Return the id of the job, or raise ``InvalidPublicId``."""
    job_id = read(PUBLIC_ID, public_id)
    if job_id is None:
        raise InvalidPublicId(f"public id: {shown(public_id)} was not signed by this project")
    return int(job_id)


def as_enqueued(task: Task, job: JobRow) -> Task:
    """Return a task with the options of this job, from ``using()`` and later changes by operators."""
    fleet = conf.current()
    # A retry has another due time.
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
    """Return the value of an option, or None if the task has not set it and the value is the default setting."""
    return None if value == fleets and getattr(task, option, None) is None else value


def _with_options(task: Task, **options: Any) -> Task:
    missing = object()
    changes = {name: value for name, value in options.items() if getattr(task, name, missing) not in (value, missing)}
    return changed(task, changes) if changes else task


def result_of(job: JobRow, task: Task, *, decrypt: bool = True, is_new: bool | None = None) -> PulseTaskResult:
    """Build the result of a job and its ended runs. Without ``decrypt``, leave out arguments and return value."""
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
        is_new=is_new,
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
        is_new=True,
    )


def result_of_run(
    claim: Claim, task: Task, args: list[Any], kwargs: dict[str, Any], alias: str | None = None
) -> TaskResult:
    """Build the result of a running job from its claim. Only a repeated run needs a query."""
    ledger: list[Attempt] = []
    if claim.attempt > 1:
        ledger += Attempt.objects.using(alias or routers_alias()).filter(job=claim.job_id).order_by("number")
    return PulseTaskResult(
        task=_as_claimed(task, claim),
        id=str(claim.job_id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=as_django_reads(claim.created_at),
        started_at=ledger[0].started_at if ledger else as_django_reads(claim.started_at),
        finished_at=None,
        last_attempted_at=as_django_reads(claim.started_at),
        args=args,
        kwargs=kwargs,
        backend=task.backend,
        errors=list(_errors(ledger)),
        worker_ids=[*(entry.worker for entry in ledger), claim.lease.holder],
    )


def finished(result: TaskResult, status: Status, outcome: Outcome, begun_at: float | None) -> TaskResult:
    """Return the result of an ended run, without another query.

    The end is the time of the claim by the server's clock, plus the time that this host measured since the handler
    began.
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


def _errors(ledger: Iterable[Attempt]) -> Iterable[TaskError]:
    for entry in ledger:
        if entry.error_class:
            yield TaskError(exception_class_path=entry.error_class, traceback=entry.traceback)
        elif (stand_in := _STAND_INS.get(OutcomeName(entry.outcome))) and entry.message:
            yield TaskError(exception_class_path=dotted_path(stand_in), traceback=entry.traceback or entry.message)
