"""Send the signals at the end of a run: Pulse's own, and Django's."""

from __future__ import annotations

from django.dispatch import Signal

from pulse_django.exceptions import CannotDecrypt, DecryptionFailed
from pulse_django.models import Job
from pulse_django.queue.words.outcomes import Failed, Outcome, Stalled, Succeeded, TimedOut, WorkerLost
from pulse_django.queue.words.states import TERMINAL, EndedBy, Status, run_ended
from pulse_django.queue.words.verb_results import Settled
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import error_after_completion, is_end_heard, job_failed, lease_lost, send, send_finished

from . import django_log
from .registry import Task, TaskResult, TaskResultStatus, sender_of, task_finished
from .results import finished, result_of_run
from .run import Performed, Run

logger = SafeLogger(__name__)

_FAILURES = frozenset({Failed.name, TimedOut.name, Stalled.name, WorkerLost.name})


def announce(performed: Performed, settled: Settled) -> None:
    """Send the signals of a run, and Django's ``task_finished`` if its job has ended."""
    report, claim, using = performed.report, performed.run.claim, performed.run.alias
    status = settled.accepted.get(report.lease) if report is not None else None
    if report is not None and status is None:
        if report.lease in settled.lost:
            send(lease_lost, Job, claim=claim, outcome=report.outcome, using=using)
        return
    if performed.run.completed:
        status = Status.COMPLETED
        if (error := performed.afterwards) is not None:  # the job stays completed, but the error is logged
            text = "job %d %r attempt %d: completed, then the handler raised %s"
            logger.error(text, claim.job_id, claim.task, claim.attempt, error.summary, exc_info=performed.error)
            send(error_after_completion, Job, claim=claim, error=error, using=using)
    if status is None:
        return
    outcome = report.outcome if report is not None else performed.run.verdict or Succeeded()
    if status is not Status.COMPLETED and outcome.name in _FAILURES:
        send(job_failed, Job, claim=claim, status=status, outcome=outcome, using=using)
    if status not in TERMINAL:
        return
    if is_end_heard():
        reason = getattr(report.decision if report else None, "reason", "")
        ending = run_ended(claim, claim.lease, status=status, by=EndedBy.WORKER, outcome=outcome.name, reason=reason)
        send_finished(Job, ending, using=using)
    if performed.task is not None:
        _announce_to_django(performed, performed.task, status, outcome)


def _announce_to_django(performed: Performed, task: Task, status: Status, outcome: Outcome) -> None:
    """Send ``task_finished`` if the project has a receiver, and write the line of Django's log receiver."""
    signal, is_sent, is_completed = task_finished, django_log.is_sent(task_finished), status is Status.COMPLETED
    if django_log.is_logged(signal) and not (is_sent and is_completed):
        said = TaskResultStatus.SUCCESSFUL if is_completed else TaskResultStatus.FAILED
        django_log.log_task(performed.run, task, said, None if is_completed else performed.error)
        signal = django_log.without_djangos_log(signal)
    if is_sent:
        _send_task_finished(signal, performed, task, status, outcome)


def _send_task_finished(signal: Signal, performed: Performed, task: Task, status: Status, outcome: Outcome) -> None:
    run = performed.run
    try:
        result = finished(performed.result or _result_of(run, task), status, outcome, run.begun_at)
    except Exception:  # the job is settled, whatever the receivers raise
        logger.exception("Sending the signals for the end of job %d failed", run.claim.job_id)
        return
    sender = sender_of(task)
    if performed.error is None:
        send(signal, sender, is_encrypted=run.claim.is_encrypted, task_result=result)
        return
    traceback = performed.error.__traceback__
    try:
        raise performed.error
    except BaseException:  # receivers of Django's signal may read the current exception
        send(signal, sender, is_encrypted=run.claim.is_encrypted, task_result=result)
    finally:
        performed.error.__traceback__ = traceback  # the other jobs of its chunk share the exception


def _result_of(run: Run, task: Task) -> TaskResult:
    try:
        run.decrypt()  # the arguments were decrypted in another process
    except (CannotDecrypt, DecryptionFailed):
        return result_of_run(run.claim, task, [], {}, run.alias)
    return result_of_run(run.claim, task, run.claim.args, run.claim.kwargs, run.alias)
