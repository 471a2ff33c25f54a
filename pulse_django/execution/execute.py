"""From a claim to a report: find the task, call its handler, and report the outcome and the decision."""

from __future__ import annotations

import asyncio
import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, NamedTuple

from asgiref.sync import sync_to_async
from django.db import Error

from pulse_django import conf
from pulse_django.exceptions import (
    CannotDecrypt,
    DeadlinePassed,
    DecryptionFailed,
    Discard,
    JobCancelled,
    LeaseLost,
    Snooze,
)
from pulse_django.models import Job
from pulse_django.signals import job_started, send
from pulse_django.words import traces
from pulse_django.words.decisions import ANY_EXCEPTION, Complete, DeadLetter, Decision, decide
from pulse_django.words.error_details import ErrorReport
from pulse_django.words.outcomes import (
    CANNOT_DECRYPT,
    GIVEN_UP,
    UNKNOWN_TASK,
    Cancelled,
    Discarded,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
    returned,
)
from pulse_django.words.reprs import without
from pulse_django.words.verb_results import Report

from . import django_log
from .call_signatures import explained
from .context import Context
from .django_log import Receivers, receivers_of
from .encryption import result_for_column
from .limit_events import anote_error, anote_success, note_error, note_success, reason_of
from .masking import hides_result
from .middleware import configured, surrounded
from .registry import Registry, registry
from .results import result_of_run
from .run import Run, running
from .tasks_framework import Task, TaskResult, is_plain, sender_of, task_started

_NOTHING_AROUND: AbstractContextManager[None] = nullcontext()
COMPLETE = Complete()
HOW_TO_DECLARE = (
    "this worker has no task with that name. Deploy the code that defines it. If it is not in the tasks.py of an "
    "installed app, add its module to PULSE['TASK_MODULES'] and restart the workers"
)
OUT_OF_TOUCH = Released(timedelta(), "the lease was not extended in time")


@dataclass(slots=True)
class Performed:
    """A run that is over for its handler. Without a report there is nothing left to say."""

    run: Run
    task: Task | None
    report: Report | None
    error: BaseException | None = None
    result: TaskResult | None = field(default=None, repr=False)  # as its handler's context had it
    ended_at: float | None = None  # by the monotonic clock
    afterwards: ErrorReport | None = None  # what the handler raised after it had completed its job itself


def perform(run: Run, tasks: Registry = registry) -> Performed:
    """Call the handler of a claimed job. Whatever it does ends as a report."""
    task = tasks.get(run.claim.task)
    if task is None:
        return _put_back(run)
    try:
        call = prepared(run, task)
    except BaseException as error:
        return _unprepared(run, task, error)
    context = call.context
    try:
        with running(run), traces.running(run.claim):
            value = _surrounded(task, call) if configured() else _invoke(task, call)
    except BaseException as error:  # SystemExit too: what a handler raises ends its run, and nothing else
        return _raised(run, task, context, note_error(run, task, error))
    note_success(run)
    return _returned(run, task, context, value)


async def perform_async(run: Run, task: Task) -> Performed:
    """Await the handler of a claimed job on the loop that is running."""
    try:
        # A repeated run reads its history, and no loop may wait for a database.
        call = prepared(run, task) if run.claim.attempt == 1 else await sync_to_async(prepared)(run, task)
    except BaseException as error:
        return _unprepared(run, task, error)
    context, pid = call.context, os.getpid()
    try:
        with running(run), traces.running(run.claim), surrounded(context) if configured() else _NOTHING_AROUND:
            try:
                value = await task.func(*call.args, **call.kwargs)
            finally:
                _end_if_forked(pid)
    except BaseException as error:
        return _raised(run, task, context, await anote_error(run, task, error))
    await anote_success(run)
    return _returned(run, task, context, value)


def _put_back(run: Run) -> Performed:
    try:
        return Performed(run, None, put_back_unknown(run))
    except Error as error:
        return _postponed(run, None, error)


def _postponed(run: Run, task: Task | None, error: BaseException) -> Performed:
    """Hand a job back that the database kept us from beginning, each time for longer."""
    delay = conf.current().backoff.delay(run.claim.refunds + 1)
    return judged(run, task, Released(delay, f"the run could not be prepared: {ErrorReport.of(error).summary}"))


class Call(NamedTuple):
    """What a handler is called with."""

    args: list[Any]
    kwargs: dict[str, Any]
    context: Context | None  # None: nothing would read it

    def __repr__(self) -> str:
        return without(self, "args", "kwargs")


def prepared(run: Run, task: Task) -> Call:
    """Read the arguments, make the context if anything will read it, and announce the start."""
    if run.claim.masked is not None:
        run.decrypt()
    claim = run.claim
    args, kwargs = claim.args, claim.kwargs
    context = None
    heard_by = receivers_of(task_started)
    announced = heard_by is Receivers.PROJECT
    if announced or task.takes_context or getattr(task, "atomic", False) or configured():
        context = Context(task_result=result_of_run(claim, task, args, kwargs, run.alias), run=run)
        if task.takes_context:
            args = [context, *args]
    if announced and context is not None:
        send(task_started, sender_of(task), is_encrypted=claim.is_encrypted, task_result=context.task_result)
    elif heard_by is Receivers.DJANGOS_LOG:
        django_log.log_started(run, task)
    send(job_started, Job, claim=claim, task=task, using=run.alias)
    return Call(args, kwargs, context)


def _unprepared(run: Run, task: Task, error: BaseException) -> Performed:
    """Say why a handler could not be called."""
    if isinstance(error, Error):  # its task's policy has nothing to judge
        return _postponed(run, task, error)
    if isinstance(error, CannotDecrypt):
        return _put_back_encrypted(run, task, error)
    return judged(run, task, Failed(report_of(run, error)), error)  # arguments that cannot be read, say


def _put_back_encrypted(run: Run, task: Task, error: CannotDecrypt) -> Performed:
    """Let a job wait for a worker that can decrypt it, each time for longer. It is not given up: no code is missing."""
    settings = conf.current()
    delay = max(settings.unknown_task_delay, settings.backoff.delay(run.claim.refunds + 1))
    return judged(run, task, Released(delay, f"{CANNOT_DECRYPT}: {error}"))


def report_of(run: Run, error: BaseException) -> ErrorReport:
    """Return what is stored of an exception: of an encrypted job, not what it says."""
    return ErrorReport.of(error, places_only=run.claim.is_encrypted and not _says_no_value(error))


def _says_no_value(error: BaseException) -> bool:
    """Say whether neither the message of an exception nor those it is chained to can repeat an argument."""
    is_alone = error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    return isinstance(error, KeyboardInterrupt | DecryptionFailed) and is_alone


def _shown_error(run: Run, error: BaseException | None) -> BaseException | None:
    """Return what logs and signals get. Error trackers read its message and the variables of its frames."""
    if error is None or not run.claim.is_encrypted or _says_no_value(error):
        return error
    return None


def judged(
    run: Run,
    task: Task | None,
    outcome: Outcome | None,
    error: BaseException | None = None,
    result: TaskResult | None = None,
) -> Performed:
    """Decide what to do about an outcome. Without an outcome, the handler completed the job itself, or lost it."""
    error = _shown_error(run, error)
    if outcome is None:
        return Performed(run, task, None, error, result)
    claim = run.claim
    decision: Decision
    if isinstance(outcome, Succeeded):  # no policy and no budget can change that
        decision = COMPLETE if outcome.result is None else Complete(result_for_column(claim, outcome.result))
    else:
        policy = getattr(task, "retry", None) or ANY_EXCEPTION
        decision = decide(
            outcome, claim.budget, policy=policy, fleet=conf.current().backoff, max_losses=conf.current().max_losses
        )
    return Performed(run, task, Report(claim.lease, outcome, decision, run.last_progress()), error, result)


def put_back_unknown(run: Run) -> Report:
    """Let a job wait for a worker that knows its task, as during a deploy, and give up on it in the end."""
    settings, claim = conf.current(), run.claim
    waited = Job.objects.db_manager(run.alias).put_back_for(claim.job_id)
    why = f"{claim.task!r}: {HOW_TO_DECLARE}"
    if waited is not None and waited >= settings.unknown_task_age:
        reason = f"{GIVEN_UP} {why}, for {waited}"
        return Report(claim.lease, Released(reason=reason), DeadLetter(reason))
    outcome = Released(settings.unknown_task_delay, f"{UNKNOWN_TASK} {why}")
    return Report(claim.lease, outcome, decide(outcome, claim.budget))


def _raised(run: Run, task: Task, context: Context | None, error: BaseException) -> Performed:
    if isinstance(error, TypeError):
        error = explained(error, task, run.claim.args, run.claim.kwargs)
    outcome, result = _outcome_of(run, error), context.task_result if context else None
    if not run.completed:
        return judged(run, task, outcome, error, result)
    # To be asked to stop is no error of a handler that has completed its job.
    afterwards = report_of(run, error) if isinstance(outcome, Failed | Snoozed | Discarded) else None
    return Performed(run, task, None, _shown_error(run, error), result, afterwards=afterwards)


def _returned(run: Run, task: Task, context: Context | None, value: Any) -> Performed:
    limit = conf.current().max_payload_bytes
    outcome = None if run.completed else returned(value, limit=limit, masked=hides_result(task, run.claim.masked))
    return judged(run, task, outcome, None, context.task_result if context else None)


def _outcome_of(run: Run, error: BaseException) -> Outcome | None:
    match error:
        case Snooze():
            return Snoozed(error.delay, reason_of(run, error))
        case Discard():
            return Discarded(error.reason)
        case JobCancelled():
            return Cancelled()
        case LeaseLost() if run.lost or run.was_out_of_touch:
            return _out_of_touch(run)
        case DeadlinePassed():
            return run.verdict or TimedOut()
        case asyncio.CancelledError() if run.verdict is not None or run.lost or run.was_out_of_touch:
            return run.verdict or _out_of_touch(run)
    return Failed(report_of(run, error))


def _out_of_touch(run: Run) -> Outcome | None:
    """A handler that stopped because it was not known whether it still held its lease: if it did, nothing happened."""
    return None if run.lost or run.reported else OUT_OF_TOUCH


def _surrounded(task: Task, call: Call) -> Any:
    with surrounded(call.context):
        return _invoke(task, call)


def _invoke(task: Task, call: Call) -> Any:
    if not getattr(task, "atomic", False) or call.context is None:
        return _called(task, call)
    with call.context.atomic() as completion:
        completion.result = _called(task, call)
    return completion.result


def _end_if_forked(pid: int) -> None:
    """End a process that a handler forked and that returned from it: anything it did would speak for the run."""
    if os.getpid() != pid:
        os._exit(0)


def _called(task: Task, call: Call) -> Any:
    pid = os.getpid()
    try:
        if is_plain(task):
            return task.func(*call.args, **call.kwargs)
        return task.call(*call.args, **call.kwargs)
    finally:
        _end_if_forked(pid)
