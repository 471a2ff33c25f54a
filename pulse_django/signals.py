"""Signals: what a project may listen to. A receiver that raises, even SystemExit, is logged and does no harm.

| signal | sent when | arguments |
|---|---|---|
| ``job_started`` | a handler is about to be called | ``claim``, ``task`` |
| ``job_finished`` | a job has come to its end, whatever that is | ``claim``, ``status``, ``outcome`` |
| ``job_failed`` | a run failed, timed out, stalled or lost its process | ``claim``, ``status``, ``outcome`` |
| ``job_dead_lettered`` | a job used up its attempts, or may not be retried | ``job_id``, ``reason`` |
| ``error_after_completion`` | a handler raised after it had completed its job itself | ``claim``, ``error`` |
| ``lease_lost`` | a report came too late: the job had moved on | ``claim``, ``outcome`` |
| ``job_reaped`` | a watchdog ended a run | ``reaped`` |
| ``alert_raised`` | a threshold of ``ALERTS`` began to be exceeded | ``name``, ``found``, ``allowed``, ``says`` |
| ``alert_ended`` | it is not exceeded any more | ``name`` |
| ``worker_lost`` | a child of a worker died, and jobs of it were recovered | ``name``, ``reason``, ``leases`` |

All that are about jobs have ``using`` as well, the alias of the database that the jobs live in: pass it on to calls
that take a job's id.

The first is sent where the handler runs, the last four by the keeper or a watchdog, the others by the process that
reports; what a keeper or a watchdog dead-letters, they tell.

The sender is ``Job``. Django's own signals of its Tasks, ``task_started`` and ``task_finished``, are sent as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.dispatch import Signal

from .exceptions import ReceiverExited
from .safe_logging import SafeLogger

logger = SafeLogger(__name__)


class SafeSignal(Signal):
    """A signal whose receivers may raise any BaseException: the others are called all the same."""

    def _live_receivers(self, sender: Any) -> Any:
        plain, awaited = super()._live_receivers(sender)
        return [_without_exits(receiver) for receiver in plain], awaited


def _without_exits(receiver: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what ``send_robust`` lets through into an exception that it logs."""

    def call(**facts: Any) -> Any:
        try:
            return receiver(**facts)
        except Exception:
            raise
        except BaseException as error:
            raise ReceiverExited(f"{type(error).__name__} was raised by a receiver: {error}") from error

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


def tell(signal: Signal, sender: type, **facts: Any) -> None:
    """Send to whoever listens; nobody usually does, and then it costs nothing. Nothing that a receiver raises gets out.

    ``send_robust`` alone lets BaseExceptions through, and what a log handler raises while it logs a receiver's error.
    """
    if not signal.receivers:
        return
    try:
        signal.send_robust(sender, **facts)
    except BaseException as error:
        logger.error("A receiver of a signal raised %s", type(error).__name__, exc_info=error)
