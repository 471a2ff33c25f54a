"""From a claim to a report: find the task, call its handler, say what happened and what is to be done about it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from django.db import Error, router

from . import conf
from .answers import Report, Settled
from .context import Context
from .decisions import ANY_EXCEPTION, DeadLetter, decide
from .errors import ErrorReport
from .exceptions import Discard, JobCancelled, LeaseLost, Snooze
from .leases import Claim
from .models import Job
from .outcomes import Cancelled, Discarded, Failed, Outcome, Released, Snoozed, returned
from .registry import Registry, registry
from .results import result_of
from .runs import Run, running
from .states import Status
from .taskapi import Task, task_finished, task_started

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Performed:
    """A run that is over for its handler. Without a report there is nothing left to say."""

    run: Run
    task: Task | None
    report: Report | None
    error: BaseException | None = None


def perform(run: Run, tasks: Registry = registry) -> Performed:
    """Call the handler of a claimed job. Whatever it does ends as a report."""
    task = tasks.get(run.claim.task)
    if task is None:
        return Performed(run, None, put_back_unknown(run.claim))
    outcome, error = call(run, task)
    if outcome is None:
        return Performed(run, task, None, error)
    policy = getattr(task, "retry", None) or ANY_EXCEPTION
    decision = decide(outcome, run.claim.budget, policy=policy, fleet=conf.current().backoff)
    return Performed(run, task, Report(run.claim.lease, outcome, decision, run.take_progress()), error)


def call(run: Run, task: Task) -> tuple[Outcome | None, BaseException | None]:
    """Run the handler to its end. No outcome: it completed the job itself, or lost its lease."""
    try:
        context = _context_of(run, task)
    except Job.DoesNotExist:
        return None, None  # deleted by hand: there is no job to report on
    except Error as error:  # the handler has not been called, so its task's policy has nothing to judge
        return Released(reason=f"the run could not be prepared: {ErrorReport.of(error).summary}"), None
    except Exception as error:  # arguments that cannot be read, say: its own job's trouble
        return Failed(ErrorReport.of(error)), error
    task_started.send_robust(sender=type(task.get_backend()), task_result=context.task_result)
    try:
        with running(run):
            value = _invoke(task, context)
    except BaseException as error:  # SystemExit too: what a handler raises ends its run, and nothing else
        return (None if run.completed else _outcome_of(error)), error
    if run.completed:
        return None, None
    return returned(value, limit=conf.current().max_payload_bytes), None


def _outcome_of(error: BaseException) -> Outcome | None:
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Discard():
            return Discarded(error.reason)
        case JobCancelled():
            return Cancelled()
        case LeaseLost():
            return None
    return Failed(ErrorReport.of(error))


def announce(performed: Performed, settled: Settled) -> None:
    """Tell Django's ``task_finished`` of a job that has come to its end."""
    if performed.task is None or not _is_over(performed, settled):
        return
    try:
        result = _context_of(performed.run, performed.task).task_result
    except Exception:  # the job is settled; whether somebody hears of it changes nothing
        logger.exception("The end of job %d could not be announced", performed.run.claim.job_id)
        return
    sender = type(performed.task.get_backend())
    if performed.error is None:
        task_finished.send_robust(sender=sender, task_result=result)
        return
    try:
        raise performed.error
    except BaseException:  # Django's own receiver logs the exception that is being handled
        task_finished.send_robust(sender=sender, task_result=result)


def put_back_unknown(claim: Claim) -> Report:
    """Let a job wait for a worker that knows its task, as during a deploy, and give up on it in the end."""
    settings = conf.current()
    waited = Job.objects.put_back_for(claim.job_id)
    reason = f"unknown task {claim.task!r}: no decorated function of this worker has that name"
    outcome = Released(settings.unknown_task_delay, reason)
    if waited is not None and waited >= settings.unknown_task_age:
        return Report(claim.lease, outcome, DeadLetter(f"{reason}, for {waited}"))
    return Report(claim.lease, outcome, decide(outcome, claim.budget))


def _context_of(run: Run, task: Task) -> Context:
    return Context(
        task_result=result_of(Job.objects.using(router.db_for_write(Job)).get(pk=run.claim.job_id), task), run=run
    )


def _invoke(task: Task, context: Context) -> Any:
    args, kwargs = context.run.claim.args, context.run.claim.kwargs
    if task.takes_context:
        args = [context, *args]
    if not getattr(task, "atomic", False):
        return task.call(*args, **kwargs)
    with context.atomic() as completion:
        completion.result = task.call(*args, **kwargs)
    return completion.result


def _is_over(performed: Performed, settled: Settled) -> bool:
    if performed.run.completed:
        return True
    report = performed.report
    status = settled.accepted.get(report.lease) if report is not None else None
    return status is not None and Status(status).is_terminal
