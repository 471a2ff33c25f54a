"""The signals that a project may receive. If a receiver raises, even SystemExit, the error is logged and ignored.

| signal | sent when | arguments |
|---|---|---|
| ``job_started`` | a handler is about to be called | ``claim``, ``task`` |
| ``job_finished`` | a job has ended, in any way | ``ending`` |
| ``job_failed`` | a run failed, timed out, stalled or lost its process | ``claim``, ``status``, ``outcome`` |
| ``job_dead_lettered`` | a job used up its attempts, or may not be retried | ``job_id``, ``reason`` |
| ``error_after_completion`` | a handler raised an error after completing its job itself | ``claim``, ``error`` |
| ``lease_lost`` | a report came too late: the run had lost its lease | ``claim``, ``outcome`` |
| ``job_reaped`` | a watchdog ended a run | ``reaped`` |
| ``alert_raised`` | a condition was found | ``name``, ``severity``, ``found``, ``says``, ``means``, ``to_do`` |
| ``alert_ended`` | the condition is over | ``name`` |
| ``worker_lost`` | a child of a worker died, and jobs of it were recovered | ``name``, ``reason``, ``leases`` |
| ``child_started`` | a process of a worker is about to claim its first job | ``number``, and the next line's |
| ``worker_ready`` | all processes of a worker claim jobs | ``name``, ``queues``, ``processes``, ``concurrency`` |
| ``worker_stopping`` | a worker was asked to stop, or ends | the same |

All signals about jobs also have ``using``, the alias of the database that stores the jobs. Pass it on to calls that
take a job's id.

``job_started`` is sent where the handler runs. ``job_finished`` and ``job_dead_lettered`` are sent by the process that
ended the job, after its commit: a worker, a keeper, a watchdog, or the process that cancelled it. ``job_reaped``, the
alerts and ``worker_lost`` are sent by a keeper or a watchdog, the others by the process that reports.

``child_started`` is sent in the main thread of each process that runs handlers, including a process that replaces
another. ``worker_ready`` and ``worker_stopping`` are sent by the keeper, which runs no handlers. ``queues`` is None for
all queues, ``number`` is the number in the log, and ``using`` has the aliases of all databases of the worker.

``ending`` is a ``pulse_django.queue.words.states.Ending``: the job's ``job_id``, ``task`` and ``queue``, its
``previous`` status and its present ``status``, the role that ended it (``by``), the ``outcome`` of the run that
ended with it (None if it was not running), and the ``reason``.

The sender is ``Job``. Django's own task signals, ``task_started`` and ``task_finished``, are sent as well.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django.db import transaction
from django.dispatch import Signal

from .exceptions import ReceiverExited
from .queue.words.payloads import ErrorReport
from .queue.words.states import Ending, Status
from .safe_logging import SafeLogger

logger = SafeLogger(__name__)
dispatch_logger = SafeLogger("django.dispatch")  # Django logs the errors of receivers there


class SafeSignal(Signal):
    """A signal whose receivers may raise any BaseException. The other receivers are still called."""

    def _live_receivers(self, sender: Any) -> Any:
        plain, awaited = super()._live_receivers(sender)
        return [_without_exits(receiver) for receiver in plain], awaited


def _without_exits(receiver: Callable[..., Any]) -> Callable[..., Any]:
    """Convert a BaseException that ``send_robust`` does not catch into an Exception that it logs."""

    def call(**facts: Any) -> Any:
        try:
            return receiver(**facts)
        except Exception:
            raise
        except BaseException as error:
            raise ReceiverExited(f"{type(error).__name__} was raised by a signal receiver: {error}") from error

    call.__qualname__ = getattr(receiver, "__qualname__", type(receiver).__qualname__)
    return call


job_started = SafeSignal()
job_finished = SafeSignal()
job_failed = SafeSignal()
job_dead_lettered = SafeSignal()
error_after_completion = SafeSignal()
lease_lost = SafeSignal()
job_reaped = SafeSignal()
alert_raised = SafeSignal()
alert_ended = SafeSignal()
worker_lost = SafeSignal()
child_started = SafeSignal()
worker_ready = SafeSignal()
worker_stopping = SafeSignal()


class HidingSignal(SafeSignal):
    """A signal about an encrypted job: errors of its receivers are logged without their messages.

    A message may repeat an argument. The exception itself is not logged either, because an error tracker would read
    the variables of its frames.
    """

    def __init__(self, signal: Signal) -> None:
        self.__dict__ = signal.__dict__

    def _log_robust_failure(self, receiver: Callable[..., Any], err: BaseException) -> None:
        places = ErrorReport.of(err, places_only=True).traceback
        dispatch_logger.error("Error calling %s in a signal of an encrypted job\n%s", receiver.__qualname__, places)


def send(signal: Signal, sender: type, *, is_encrypted: bool = False, **facts: Any) -> None:
    """Send to all receivers. Never raise, and do nothing if there are no receivers.

    ``send_robust`` alone does not catch a BaseException, or an error of a log handler that logs a receiver's error.
    Messages of receivers' errors are not logged if ``is_encrypted`` or the ``claim`` says that the job is encrypted.
    """
    if not signal.receivers:
        return
    is_encrypted = is_encrypted or getattr(facts.get("claim"), "is_encrypted", False)
    try:
        (HidingSignal(signal) if is_encrypted else signal).send_robust(sender, **facts)
    except BaseException as error:
        logger.error("A signal receiver raised %s", type(error).__name__, exc_info=None if is_encrypted else error)


def is_end_heard() -> bool:
    """Return whether the end of jobs has receivers. Without receivers, no ``Ending`` is created."""
    return bool(job_finished.receivers or job_dead_lettered.receivers)


def send_finished(sender: type, ending: Ending | None, *, using: str | None) -> None:
    """Send the signals of the end of a job, if it has ended."""
    if ending is None:
        return
    send(job_finished, sender, ending=ending, using=using)
    if ending.status is Status.DEAD_LETTERED:
        send(job_dead_lettered, sender, job_id=ending.job_id, reason=ending.reason, using=using)


def send_when_committed(sender: type, ending: Ending | None, *, using: str) -> None:
    """Send the signals of the end of a job after the commit of the caller's transaction, or at once without one."""
    if ending is not None and is_end_heard():
        transaction.on_commit(partial(send_finished, sender, ending, using=using), using=using)
