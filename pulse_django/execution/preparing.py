"""What happens before a handler is called: its arguments are read, and its start is announced."""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db import Error

from pulse_django import conf
from pulse_django.exceptions import CannotDecrypt
from pulse_django.models import Job
from pulse_django.signals import job_started, send
from pulse_django.words.decisions import DeadLetter, decide
from pulse_django.words.display import without
from pulse_django.words.outcomes import CANNOT_DECRYPT, GIVEN_UP, UNKNOWN_TASK, Failed, Released
from pulse_django.words.payloads import ErrorReport
from pulse_django.words.verb_results import Report

from . import django_log
from .context import Context
from .django_log import Receivers, receivers_of
from .judging import Performed, judged, report_of
from .middleware import configured
from .registry import Task, sender_of, task_started
from .results import result_of_run
from .run import Run

HOW_TO_DECLARE = (
    "this worker has no task with that name. Deploy the code that defines it. If it is not in the tasks.py of an "
    "installed app, add its module to PULSE['TASK_MODULES'] and restart the workers"
)


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


def unprepared(run: Run, task: Task, error: BaseException) -> Performed:
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


def put_back(run: Run) -> Performed:
    try:
        return Performed(run, None, put_back_unknown(run))
    except Error as error:
        return _postponed(run, None, error)


def _postponed(run: Run, task: Task | None, error: BaseException) -> Performed:
    """Hand a job back that the database kept us from beginning, each time for longer."""
    delay = conf.current().backoff.delay(run.claim.refunds + 1)
    return judged(run, task, Released(delay, f"the run could not be prepared: {ErrorReport.of(error).summary}"))


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
