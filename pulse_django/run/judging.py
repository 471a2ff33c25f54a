"""Turn the end of a handler into a report: the outcome and the decision."""

from __future__ import annotations

import asyncio
from typing import Any

from pulse_django import conf
from pulse_django.exceptions import (
    CannotBeCalled,
    DeadlinePassed,
    DecryptionFailed,
    Discard,
    JobCancelled,
    LeaseLost,
    RateLimited,
    RetryLater,
    Snooze,
    WaitFor,
)
from pulse_django.queue.words.decisions import ANY_EXCEPTION, Complete, Decision, decide
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.outcomes import (
    NOTHING_RETURNED,
    Cancelled,
    Discarded,
    Failed,
    Outcome,
    Snoozed,
    Succeeded,
    TimedOut,
    Waited,
    returned,
)
from pulse_django.queue.words.payloads import ErrorReport, begin_at_handler, one_line
from pulse_django.queue.words.verb_results import Report

from .calls import misfit, uses_of
from .codec import codec
from .context import Context
from .registry import Task, TaskResult
from .run import OUT_OF_TOUCH, Performed, Run

COMPLETE = Complete()


def report_of(run: Run, error: BaseException) -> ErrorReport:
    """Return the stored form of an exception. For an encrypted job, leave out messages."""
    return ErrorReport.of(error, places_only=run.claim.is_encrypted and not _says_no_value(error))


def _says_no_value(error: BaseException) -> bool:
    """Return whether the messages of an exception and of its causes cannot contain an argument."""
    is_alone = error.__cause__ is None and (error.__context__ is None or error.__suppress_context__)
    return isinstance(error, KeyboardInterrupt | DecryptionFailed) and is_alone


def _shown_error(run: Run, error: BaseException | None) -> BaseException | None:
    """Return the exception for logs and signals. Error trackers read its message and the variables of its frames."""
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
    """Return the report for an outcome. Without an outcome, the handler completed the job itself, or lost it."""
    error = _shown_error(run, error)
    if outcome is None:
        return Performed(run, task, None, error, result)
    claim = run.claim
    decision: Decision
    if isinstance(outcome, Succeeded):  # no policy or budget applies
        decision = COMPLETE if outcome.result is None else Complete(codec().stored(claim, outcome.result, RESULT))
    else:
        policy = getattr(task, "retry", None) or ANY_EXCEPTION
        decision = decide(
            outcome,
            claim.budget,
            policy=policy,
            fleet=conf.current().backoff,
            max_lost_workers=conf.current().max_lost_workers,
        )
    return Performed(run, task, Report(claim.lease, outcome, decision, run.last_progress()), error, result)


def judged_error(run: Run, task: Task, context: Context | None, error: BaseException) -> Performed:
    if isinstance(error, TypeError) and (why := misfit(task, run.claim.args, run.claim.kwargs)):
        error = CannotBeCalled(why)  # a retry would fail, too
    begin_at_handler(error)
    outcome, result = outcome_of(run, error), context.task_result if context else None
    if not run.completed:
        return judged(run, task, outcome, error, result)
    # If the handler has completed its job, an exception that only stops it is not an error.
    afterwards = report_of(run, error) if isinstance(outcome, Failed | Snoozed | Waited | Discarded) else None
    return Performed(run, task, None, _shown_error(run, error), result, afterwards=afterwards)


def judged_value(run: Run, task: Task, context: Context | None, value: Any) -> Performed:
    outcome: Outcome | None = None if run.completed else NOTHING_RETURNED
    if value is not None and not run.completed:
        limit = conf.current().max_payload_bytes
        sensitive = run.claim.sensitive
        hides = (sensitive is not None or uses_of(task).hides) and codec().hides_result(task, sensitive)
        outcome = returned(value, limit=limit, sensitive=hides)
    return judged(run, task, outcome, None, context.task_result if context else None)


def outcome_of(run: Run, error: BaseException) -> Outcome | None:
    match error:
        case Snooze():
            return Snoozed(error.delay, reason_of(run, error))
        case RetryLater():
            return Failed(report_of(run, error), retry_in=error.delay)
        case WaitFor():
            return Waited(error.reason)
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


def reason_of(run: Run, error: Snooze) -> str:
    """Return the reason to show. It may contain an argument, so it is left out for an encrypted job."""
    if not isinstance(error, RateLimited):
        return ""
    if run.claim.is_encrypted or not error.reason:
        return "rate limited"
    return f"rate limited: {one_line(error.reason)}"


def outcome_of_stopped(run: Run) -> Outcome | None:
    """Return the outcome of a run that was asked to stop, whatever its handler raised."""
    if run.verdict is not None:
        return run.verdict
    return _out_of_touch(run) if run.lost or run.was_out_of_touch else Cancelled()


def _out_of_touch(run: Run) -> Outcome | None:
    """Return the outcome for a handler that stopped because its lease was uncertain: the job is released."""
    return None if run.lost or run.reported else OUT_OF_TOUCH
