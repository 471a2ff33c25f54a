"""Run a claimed job: find the task, call its handler, and report the outcome and the decision."""

from __future__ import annotations

import os
import time
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import Error

from pulse_django import conf
from pulse_django.exceptions import CannotDecrypt
from pulse_django.models import Job
from pulse_django.queue.capability import Single, provided
from pulse_django.queue.words import traces
from pulse_django.queue.words.decisions import DeadLetter
from pulse_django.queue.words.display import without
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT, GIVEN_UP, UNKNOWN_TASK, Failed, Released
from pulse_django.queue.words.payloads import ErrorReport
from pulse_django.queue.words.verb_results import Report
from pulse_django.safe_logging import AT_ONCE, process_log
from pulse_django.signals import job_started, send

from . import django_log
from .context import Context
from .judging import judged, judged_error, judged_value, report_of
from .middleware import surrounded
from .registry import Registry, Task, TaskResultStatus, chunk_of, is_plain, registry, sender_of, task_started
from .results import result_of_run
from .run import ChunkRun, Performed, Run, end_if_forked, running

NOTHING_AROUND: AbstractContextManager[None] = nullcontext()


class AfterRun(Single):
    """Is called after a handler, and before the outcome of the run is decided."""

    @abstractmethod
    def concerns(self, run: Run, task: Task, error: BaseException) -> bool:
        """Return whether ``failed()`` may use the database."""

    @abstractmethod
    def failed(self, run: Run, task: Task, error: BaseException) -> BaseException:
        """Return the error to record."""

    @abstractmethod
    def succeeded(self, run: Run) -> None:
        """Note the success of a probe, which decides whether other jobs may start."""


class Chunking(Single):
    """Calls handlers with several jobs at once."""

    @abstractmethod
    def perform(self, run: ChunkRun, task: Task | None) -> Performed: ...
    @abstractmethod
    async def perform_async(self, run: ChunkRun, task: Task) -> Performed: ...


def perform(run: Run, tasks: Registry = registry) -> Performed:
    """Call the handler of a claimed job. Return a report, whatever the handler does."""
    task, is_bare = _plan_of(run.claim.task, tasks)
    if isinstance(run, ChunkRun) and (chunking := provided(Chunking)):
        return chunking.perform(run, task)
    if task is None:
        return put_back(run)
    # Without the capability, the handler gets no list and fails.
    if not is_bare and chunk_of(task) and (chunking := provided(Chunking)):
        return chunking.perform(ChunkRun([run]), task).members[0]
    try:
        call = prepared(run, task, is_bare=is_bare)
    except BaseException as error:
        return unprepared(run, task, error)
    context = call.context
    try:
        with running(run):
            value = _called(task, call) if is_bare else _surrounded(task, call, run)
    except BaseException as error:  # SystemExit too: an exception ends only its run
        return judged_error(run, task, context, failed(run, task, error))
    if run.claim.is_probe:
        succeeded(run)
    return judged_value(run, task, context, value)


async def perform_async(run: Run, task: Task) -> Performed:
    """Await the handler of a claimed job on the running event loop."""
    is_bare = _plan_of(run.claim.task, registry) == (task, True)
    if isinstance(run, ChunkRun) and (chunking := provided(Chunking)):
        return await chunking.perform_async(run, task)
    if not is_bare and chunk_of(task) and (chunking := provided(Chunking)):
        return (await chunking.perform_async(ChunkRun([run]), task)).members[0]
    try:
        # A repeated run reads its history, and an event loop must not wait for a database.
        has_history = run.claim.attempt > 1 and not is_bare
        call = await sync_to_async(prepared)(run, task) if has_history else prepared(run, task, is_bare=is_bare)
    except BaseException as error:
        return unprepared(run, task, error)
    context, pid = call.context, os.getpid()
    try:
        around = NOTHING_AROUND if is_bare or not conf.current().middleware else surrounded(context)
        with running(run), NOTHING_AROUND if is_bare else traces.running(run.claim), around:
            try:
                value = await task.func(*call.args, **call.kwargs)
            finally:
                end_if_forked(pid)
    except BaseException as error:
        return judged_error(run, task, context, await afailed(run, task, error))
    if run.claim.is_probe:
        await sync_to_async(succeeded)(run)
    return judged_value(run, task, context, value)


# Facts that all runs of a task share. They are cached for a moment: a receiver, a middleware or a tracer that is added
# while a worker runs is used for later runs.


class Plan(NamedTuple):
    task: Task | None
    is_bare: bool  # only call the function: no middleware, no context, no signal at the start


_plans: dict[str, Plan] = {}
_planned_until = float("-inf")


def _plan_of(name: str, tasks: Registry) -> Plan:
    global _planned_until
    if tasks is not registry or process_log.writer is AT_ONCE:  # for example, a call in a test
        return _planned(tasks.get(name))
    if (now := time.monotonic()) > _planned_until:
        _plans.clear()
        _planned_until = now + django_log.AGE
    plan = _plans.get(name)
    if plan is None:
        plan = _plans[name] = _planned(tasks.get(name))
    return plan


def _planned(task: Task | None) -> Plan:
    is_bare = not (
        task is None
        or task.takes_context
        or getattr(task, "atomic", False)
        or chunk_of(task)
        or conf.current().middleware
        or traces.are_followed()
        or job_started.receivers
        or django_log.is_heard(task_started)
    )
    return Plan(task, is_bare)


# Hooks of capabilities that run after the handler, before the outcome is decided.


def failed(run: Run, task: Task, error: BaseException) -> BaseException:
    """Return the error to record for the run."""
    after_run = provided(AfterRun)
    return after_run.failed(run, task, error) if after_run and after_run.concerns(run, task, error) else error


async def afailed(run: Run, task: Task, error: BaseException) -> BaseException:
    return await sync_to_async(failed)(run, task, error) if is_concerned(run, task, error) else error


def is_concerned(run: Run, task: Task, error: BaseException) -> bool:
    after_run = provided(AfterRun)
    return after_run is not None and after_run.concerns(run, task, error)


def succeeded(run: Run) -> None:
    if after_run := provided(AfterRun):
        after_run.succeeded(run)


def _surrounded(task: Task, call: Call, run: Run) -> Any:
    with traces.running(run.claim), surrounded(call.context) if conf.current().middleware else NOTHING_AROUND:
        return _invoke(task, call)


def _invoke(task: Task, call: Call) -> Any:
    if not getattr(task, "atomic", False) or call.context is None:
        return _called(task, call)
    with call.context.atomic() as completion:
        completion.result = _called(task, call)
    return completion.result


def _called(task: Task, call: Call) -> Any:
    pid = os.getpid()
    try:
        if is_plain(task):
            return task.func(*call.args, **call.kwargs)
        return task.call(*call.args, **call.kwargs)
    finally:
        end_if_forked(pid)


# The steps before a handler is called: read its arguments, and announce its start.


HOW_TO_DECLARE = (
    "this worker has no task with that name. Deploy the code that defines it. If it is not in the tasks.py of an "
    "installed app, add its module to PULSE['TASK_MODULES'] and restart the workers"
)


class Call(NamedTuple):
    """The arguments of a call of a handler."""

    args: list[Any]
    kwargs: dict[str, Any]
    context: Context | None  # None: it is not needed

    def __repr__(self) -> str:
        return without(self, "args", "kwargs")


def prepared(run: Run, task: Task, *, is_bare: bool = False) -> Call:
    """Read the arguments, make the context if it is needed, and announce the start."""
    if run.claim.sensitive is not None:
        run.decrypt()
    claim = run.claim
    args, kwargs = claim.args, claim.kwargs
    if is_bare:
        return Call(args, kwargs, None)
    context = None
    announced = django_log.is_sent(task_started)
    if announced or task.takes_context or getattr(task, "atomic", False) or conf.current().middleware:
        context = Context(task_result=result_of_run(claim, task, args, kwargs, run.alias), run=run)
        if task.takes_context:
            args = [context, *args]
    if announced and context is not None:
        send(task_started, sender_of(task), is_encrypted=claim.is_encrypted, task_result=context.task_result)
    elif django_log.is_logged(task_started):
        django_log.log_task(run, task, TaskResultStatus.RUNNING)
    send(job_started, Job, claim=claim, task=task, using=run.alias)
    return Call(args, kwargs, context)


def unprepared(run: Run, task: Task, error: BaseException) -> Performed:
    """Return the report for a handler that could not be called."""
    if isinstance(error, Error):  # a database error: the task's retry policy does not apply
        return _postponed(run, task, error)
    if isinstance(error, CannotDecrypt):  # no code is missing, so do not give up; wait longer each time
        settings = conf.current()
        delay = max(settings.unknown_task_delay, settings.backoff.delay(run.claim.refunds + 1))
        return judged(run, task, Released(delay, f"{CANNOT_DECRYPT}: {error}"))
    return judged(run, task, Failed(report_of(run, error)), error)  # for example, unreadable arguments


def put_back(run: Run) -> Performed:
    """Put a job back for a worker that knows its task, as during a deploy. Give up after ``UNKNOWN_TASK_AGE``."""
    settings, claim = conf.current(), run.claim
    try:
        waited = Job.objects.db_manager(run.alias).put_back_for(claim.job_id)
    except Error as error:
        return _postponed(run, None, error)
    why = f"{claim.task!r}: {HOW_TO_DECLARE}"
    if waited is not None and waited >= settings.unknown_task_age:
        reason = f"{GIVEN_UP} {why}, for {waited}"
        return Performed(run, None, Report(claim.lease, Released(reason=reason), DeadLetter(reason)))
    return judged(run, None, Released(settings.unknown_task_delay, f"{UNKNOWN_TASK} {why}"))


def _postponed(run: Run, task: Task | None, error: BaseException) -> Performed:
    """Return a job to the queue that could not begin because of a database error. Wait longer each time."""
    delay = conf.current().backoff.delay(run.claim.refunds + 1)
    return judged(run, task, Released(delay, f"the run could not be prepared: {ErrorReport.of(error).summary}"))
