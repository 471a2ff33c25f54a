"""From a claim to a report: find the task, call its handler, say what happened and what is to be done about it."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from django.db import Error

from . import conf
from .answers import Report, Settled
from .context import Context
from .decisions import ANY_EXCEPTION, DeadLetter, decide
from .errors import ErrorReport
from .exceptions import DeadlinePassed, Discard, JobCancelled, LeaseLost, Snooze
from .middleware import configured, surrounded
from .models import Job
from .outcomes import Cancelled, Discarded, Failed, Outcome, Released, Snoozed, Succeeded, TimedOut, returned
from .registry import Registry, registry
from .results import finished, result_of_run
from .runs import Run, running
from .signals import job_dead_lettered, job_failed, job_finished, job_started, lease_lost, tell
from .states import Status
from .taskapi import Task, TaskResult, task_finished, task_started

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Performed:
    """A run that is over for its handler. Without a report there is nothing left to say."""

    run: Run
    task: Task | None
    report: Report | None
    error: BaseException | None = None
    result: TaskResult | None = None  # as its handler's context had it
    ended_at: float | None = None  # by the monotonic clock


def perform(run: Run, tasks: Registry = registry) -> Performed:
    """Call the handler of a claimed job. Whatever it does ends as a report."""
    task = tasks.get(run.claim.task)
    if task is None:
        return Performed(run, None, put_back_unknown(run))
    context = prepared(run, task)
    if isinstance(context, Performed):
        return context
    try:
        with running(run):
            value = _surrounded(task, context) if configured() else _invoke(task, context)
    except BaseException as error:  # SystemExit too: what a handler raises ends its run, and nothing else
        return _raised(run, task, context, error)
    return _returned(run, task, context, value)


async def perform_async(run: Run, task: Task) -> Performed:
    """Await the handler of a claimed job on the loop that is running."""
    context = prepared(run, task)
    if isinstance(context, Performed):
        return context
    try:
        with running(run), surrounded(context):
            value = await task.acall(*_arguments(task, context), **context.run.claim.kwargs)
    except BaseException as error:
        return _raised(run, task, context, error)
    return _returned(run, task, context, value)


def prepared(run: Run, task: Task) -> Context | Performed:
    """Make the handler's context and announce its start, or say why it cannot be called."""
    try:
        context = Context(task_result=result_of_run(run.claim, task, run.alias), run=run)
    except Error as error:  # the handler has not been called, so its task's policy has nothing to judge
        reason = f"the run could not be prepared: {ErrorReport.of(error).summary}"
        return judged(run, task, Released(reason=reason))
    except Exception as error:  # arguments that cannot be read, say: its own job's trouble
        return judged(run, task, Failed(ErrorReport.of(error)), error)
    task_started.send_robust(sender=type(task.get_backend()), task_result=context.task_result)
    tell(job_started, Job, claim=run.claim, task=task)
    return context


def judged(
    run: Run,
    task: Task | None,
    outcome: Outcome | None,
    error: BaseException | None = None,
    result: TaskResult | None = None,
) -> Performed:
    """Decide what is to be done about an outcome. None of it: the handler completed the job itself, or lost it."""
    if outcome is None:
        return Performed(run, task, None, error, result)
    claim = run.claim
    policy = getattr(task, "retry", None) or ANY_EXCEPTION
    decision = decide(outcome, claim.budget, policy=policy, fleet=conf.current().backoff)
    return Performed(run, task, Report(claim.lease, outcome, decision, run.last_progress()), error, result)


def put_back_unknown(run: Run) -> Report:
    """Let a job wait for a worker that knows its task, as during a deploy, and give up on it in the end."""
    settings, claim = conf.current(), run.claim
    waited = Job.objects.db_manager(run.alias).put_back_for(claim.job_id)
    reason = f"unknown task {claim.task!r}: no decorated function of this worker has that name"
    outcome = Released(settings.unknown_task_delay, reason)
    if waited is not None and waited >= settings.unknown_task_age:
        return Report(claim.lease, outcome, DeadLetter(f"{reason}, for {waited}"))
    return Report(claim.lease, outcome, decide(outcome, claim.budget))


def announce(performed: Performed, settled: Settled) -> None:
    """Tell whoever listens what became of a run, and Django's ``task_finished`` of a job that has come to its end."""
    report, claim = performed.report, performed.run.claim
    status = settled.accepted.get(report.lease) if report is not None else None
    if report is not None and status is None:
        if report.lease in settled.lost:
            tell(lease_lost, Job, claim=claim, outcome=report.outcome)
        return
    if performed.run.completed:
        status = Status.COMPLETED
    if status is None:
        return
    outcome = report.outcome if report is not None else performed.run.verdict or Succeeded()
    if status is not Status.COMPLETED and outcome.name in _FAILURES:
        tell(job_failed, Job, claim=claim, status=status, outcome=outcome)
    if not status.is_terminal:
        return
    tell(job_finished, Job, claim=claim, status=status, outcome=outcome)
    if status is Status.DEAD_LETTERED:
        reason = getattr(report.decision if report else None, "reason", "")
        tell(job_dead_lettered, Job, job_id=claim.job_id, reason=reason)
    if performed.task is not None:
        _announce_to_django(performed, performed.task, status, outcome)


_FAILURES = frozenset({Failed.name, TimedOut.name, "STALLED", "WORKER_LOST"})


def _announce_to_django(performed: Performed, task: Task, status: Status, outcome: Outcome) -> None:
    run = performed.run
    try:
        result = finished(performed.result or result_of_run(run.claim, task, run.alias), status, outcome, run.begun_at)
    except Exception:  # the job is settled; whether somebody hears of it changes nothing
        logger.exception("The end of job %d could not be announced", run.claim.job_id)
        return
    sender = type(task.get_backend())
    if performed.error is None:
        task_finished.send_robust(sender=sender, task_result=result)
        return
    try:
        raise performed.error
    except BaseException:  # Django's own receiver logs the exception that is being handled
        task_finished.send_robust(sender=sender, task_result=result)


def _raised(run: Run, task: Task, context: Context, error: BaseException) -> Performed:
    outcome = None if run.completed else _outcome_of(run, error)
    return judged(run, task, outcome, error, context.task_result)


def _returned(run: Run, task: Task, context: Context, value: Any) -> Performed:
    outcome = None if run.completed else returned(value, limit=conf.current().max_payload_bytes)
    return judged(run, task, outcome, None, context.task_result)


def _outcome_of(run: Run, error: BaseException) -> Outcome | None:
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Discard():
            return Discarded(error.reason)
        case JobCancelled():
            return Cancelled()
        case LeaseLost():
            return None
        case DeadlinePassed():
            return run.verdict or TimedOut()
        case asyncio.CancelledError() if run.verdict is not None or run.lost:
            return run.verdict
    return Failed(ErrorReport.of(error))


def _surrounded(task: Task, context: Context) -> Any:
    with surrounded(context):
        return _invoke(task, context)


def _invoke(task: Task, context: Context) -> Any:
    args, kwargs = _arguments(task, context), context.run.claim.kwargs
    if not getattr(task, "atomic", False):
        return task.call(*args, **kwargs)
    with context.atomic() as completion:
        completion.result = task.call(*args, **kwargs)
    return completion.result


def _arguments(task: Task, context: Context) -> list[Any]:
    args = context.run.claim.args
    return [context, *args] if task.takes_context else args
