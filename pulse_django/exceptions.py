"""The exceptions that Pulse raises, and those that a handler raises to end its run.

Verbs return lost leases as a result, and do not raise. Only a handler that checks its lease gets an exception.
"""

from __future__ import annotations

from datetime import timedelta

from .queue.words.durations import Seconds, as_timedelta


class PulseError(Exception):
    """The base class of the errors that Pulse raises."""


class InvalidJob(PulseError, ValueError):
    """A job that cannot be enqueued. The message names the field and the problem."""


class InvalidSchedule(PulseError, ValueError):
    """An invalid schedule. The message names the field and the problem."""


class PayloadError(InvalidJob):
    """Arguments or a result that PostgreSQL's jsonb cannot store, or that are too large."""

    path: tuple[str | int, ...] = ()  # the place of the fault: "args", 1, and keys
    fault: str = ""  # the problem


class UnsupportedValue(PayloadError, TypeError):
    """A value of a type that JSON does not have. The message names its place and a replacement."""


class WrongArguments(InvalidJob, TypeError):
    """Arguments that the function of the task does not accept."""


class CannotBeCalled(WrongArguments):
    """A job whose arguments its function does not accept. It is never retried, because it would fail again."""


class UnstorableResult(PayloadError):
    """A handler returned a value that cannot be stored. It is never retried, because it would fail again."""


class CannotEncrypt(PulseError, RuntimeError):
    """A value of an encrypted task that this process cannot encrypt: a key or ``cryptography`` is missing."""


class CannotDecrypt(PulseError, RuntimeError):
    """A value that this process cannot decrypt, because a key or ``cryptography`` is missing. Another process may."""


class DecryptionFailed(PulseError, ValueError):
    """A value that was changed, or belongs to another job. It is never retried, because it would fail again."""


class AlreadyEnqueued(PulseError):
    """Another job holds the same unique key, and the task has ``on_conflict="raise"``. Nothing was enqueued."""

    def __init__(self, task: str, job_id: int | None) -> None:
        self.task = task
        self.job_id = job_id  # of the other job; None: it is in the same list
        super().__init__(task, job_id)

    def __str__(self) -> str:
        other = "another job of the list" if self.job_id is None else f"job {self.job_id}"
        return f"{self.task}: {other} has the same unique key"


class JobIsMoving(PulseError, LookupError):
    """A job that left its shard and has not arrived in another one, because a move was interrupted. It is not lost."""


class InvalidWorkflow(PulseError, ValueError):
    """An invalid batch or workflow. The message names the problem."""


class BatchFinished(PulseError):
    """A job cannot be added to a batch whose jobs have all ended."""


class EventTimedOut(PulseError, TimeoutError):
    """An event that a job waited for did not arrive in time."""


class NeededResultMissing(PulseError, LookupError):
    """A needed job has no result, because it is a dead letter, cancelled or deleted."""

    def __init__(self, name: str, status: str) -> None:
        self.name = name
        self.status = status
        super().__init__(name, status)

    def __str__(self) -> str:
        return f"{self.name!r} has no result: the job is {self.status}"


class NotInsideTransaction(PulseError, RuntimeError):
    """A call that must commit on its own was made inside a transaction. A run that fails with it is never retried."""


class CannotWait(PulseError, RuntimeError):
    """A wait in a transaction or a handler might never end. A run that fails with it is never retried."""


class InvalidPublicId(InvalidJob):
    """A public id that this project has not signed."""


class StaleToken(PulseError):
    """A write had an older token than the last one, because another run has written since. Nothing was changed."""


class UnknownTask(PulseError):
    """A job whose task this process does not know. It is never raised, but shown in the ledger and in results."""


class RunLost(PulseError):
    """A run whose worker was lost. It is never raised, but shown in the errors of results."""


class RunTimedOut(PulseError):
    """A run that exceeded its deadline. It is never raised, but shown in the errors of results."""


class RunStalled(PulseError):
    """A run without progress. It is never raised, but shown in the errors of results."""


class StopRun(BaseException):
    """Ends the run of the handler that raises it. It is not an Exception, so ``except Exception`` does not catch it."""


class LeaseLost(StopRun):
    """Another run has the job now, so reports of this run are refused."""


class JobCancelled(StopRun):
    """The job was asked to stop."""


class DeadlinePassed(StopRun):
    """The run took longer than its task allows, and was ended."""


class Snooze(StopRun):
    """Run the job again later. This attempt does not count."""

    def __init__(self, delay: Seconds) -> None:
        super().__init__(delay)
        self.delay = _checked_delay(self, delay)


class RetryLater(StopRun):
    """This attempt has failed. Run the job again after ``delay``; after the last attempt, it becomes a dead letter.

    The ``retry`` policy of the task is not used.
    """

    def __init__(self, delay: Seconds, reason: str = "") -> None:
        super().__init__(reason)
        self.delay = _checked_delay(self, delay)


def _checked_delay(of: object, given: Seconds) -> timedelta:
    if not isinstance(delay := as_timedelta(given), timedelta) or delay < timedelta():
        raise TypeError(f"{type(of).__name__} requires a non-negative number of seconds or timedelta, not {given!r}")
    return delay


class RateLimited(Snooze):
    """An external system refuses more requests: start no job of the same limit before ``after`` has passed.

    This attempt does not count. A job without a limit is only run again later. With ``only_key``, only jobs with the
    same key wait, and jobs with other keys go on.
    """

    def __init__(self, after: Seconds, reason: str = "", *, only_key: bool = False) -> None:
        super().__init__(after)
        self.only_key = only_key
        self.reason = reason if isinstance(reason, str) else repr(reason)


class WaitFor(StopRun):
    """End this run, and run the job again when its needs are met. The attempt does not count."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(StopRun):
    """End the run and cancel the job, because it is no longer wanted."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason if isinstance(reason, str) else repr(reason)


class ReceiverExited(RuntimeError):
    """A signal receiver raised SystemExit or another BaseException. It is logged, and ends nothing else."""
