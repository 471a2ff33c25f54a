"""What Pulse raises, and what a handler raises to end its run.

A lost lease is an answer of the verbs, never an exception of theirs. It becomes one only inside a handler that asks.
"""

from __future__ import annotations

from datetime import timedelta

from .queue.words.durations import Seconds, as_timedelta


class PulseError(Exception):
    """Catch this to catch everything that Pulse raises because of a mistake."""


class InvalidJob(PulseError, ValueError):
    """A job that cannot be enqueued: the message names the field and what is wrong with it."""


class InvalidSchedule(PulseError, ValueError):
    """A schedule that cannot be: the message names the field and what is wrong with it."""


class PayloadError(InvalidJob):
    """Arguments or a result that PostgreSQL's jsonb cannot hold, or that are larger than allowed."""

    path: tuple[str | int, ...] = ()  # where the fault is: "args", 1, and the keys within
    fault: str = ""  # what is wrong there


class UnsupportedValue(PayloadError, TypeError):
    """A value of a type that JSON does not have: the message names its place and what to pass instead."""


class WrongArguments(InvalidJob, TypeError):
    """Arguments that the function of the task does not take."""


class CannotBeCalled(WrongArguments):
    """A job whose arguments its function does not take. Never retried: it would be no different next time."""


class UnstorableResult(PayloadError):
    """A handler returned what cannot be stored. Never retried: it would be no different next time."""


class CannotEncrypt(PulseError, RuntimeError):
    """A value of an encrypted task that this process cannot encrypt: a key or ``cryptography`` is missing."""


class CannotDecrypt(PulseError, RuntimeError):
    """A value that this process cannot decrypt, and another may: a key or ``cryptography`` is missing here."""


class DecryptionFailed(PulseError, ValueError):
    """A value that was changed, or belongs to another job. Never retried: it would be no different next time."""


class AlreadyEnqueued(PulseError):
    """Another job holds the key of this one, and its task says ``on_conflict="raise"``. Nothing was enqueued."""

    def __init__(self, task: str, job_id: int | None) -> None:
        self.task = task
        self.job_id = job_id  # of the other one; None: it is in the same list
        super().__init__(task, job_id)

    def __str__(self) -> str:
        other = "another job of the list" if self.job_id is None else f"job {self.job_id}"
        return f"{self.task}: {other} has the same unique key"


class JobIsMoving(PulseError, LookupError):
    """A job that left its shard and has not arrived in another: a move was interrupted. It is kept, and not lost."""


class InvalidWorkflow(PulseError, ValueError):
    """A batch or a workflow that cannot be: the message says what is wrong with it."""


class BatchFinished(PulseError):
    """A job was to be added to a batch whose jobs are all over."""


class EventTimedOut(PulseError, TimeoutError):
    """An event that a job waited for did not come in time."""


class NeededResultMissing(PulseError, LookupError):
    """The result of a job that was needed was read, and there is none: it is a dead letter, cancelled or deleted."""

    def __init__(self, name: str, status: str) -> None:
        self.name = name
        self.status = status
        super().__init__(name, status)

    def __str__(self) -> str:
        return f"{self.name!r} has no result: the job is {self.status}"


class NotInsideTransaction(PulseError, RuntimeError):
    """What must commit by itself was called inside a transaction of the caller's. A handler's is never retried."""


class CannotWait(PulseError, RuntimeError):
    """A wait for a result that might never end: inside a transaction, or in a handler. A handler's is never retried."""


class InvalidPublicId(InvalidJob):
    """A public id that this project has not signed."""


class StaleToken(PulseError):
    """A write with an older token than the resource has seen: another run has been here since. Nothing was changed."""


class UnknownTask(PulseError):
    """A job whose task this process does not know. Never raised; the ledger and results name it."""


class RunLost(PulseError):
    """A run that ended with its worker. Never raised; results name it among a task's errors."""


class RunTimedOut(PulseError):
    """A run past its deadline. Never raised; results name it among a task's errors."""


class RunStalled(PulseError):
    """A run without progress. Never raised; results name it among a task's errors."""


class StopRun(BaseException):
    """Ends the run of the handler that raises it. Not an Exception, so that ``except Exception`` lets it pass."""


class LeaseLost(StopRun):
    """The job belongs to another run by now: nothing that this one reports will count."""


class JobCancelled(StopRun):
    """The job was asked to stop."""


class DeadlinePassed(StopRun):
    """The run took longer than its task allows; it has been ended without its handler."""


class Snooze(StopRun):
    """Run me again later; this attempt does not count."""

    def __init__(self, delay: Seconds) -> None:
        super().__init__(delay)
        self.delay = _checked_delay(self, delay)


class RetryLater(StopRun):
    """This attempt has failed; run me again after ``delay``. After the last attempt the job is a dead letter.

    It is the task's own word: whether its ``retry`` would retry that, and how soon, is not asked.
    """

    def __init__(self, delay: Seconds, reason: str = "") -> None:
        super().__init__(reason)
        self.delay = _checked_delay(self, delay)


def _checked_delay(of: object, given: Seconds) -> timedelta:
    if not isinstance(delay := as_timedelta(given), timedelta) or delay < timedelta():
        raise TypeError(f"{type(of).__name__} requires a non-negative number of seconds or timedelta, not {given!r}")
    return delay


class RateLimited(Snooze):
    """The system that this handler calls has enough: no job of the same limit starts before ``after`` has passed.

    This attempt does not count. A job without a limit is only run again later. ``only_key``: the system has enough of
    this job's key, and jobs of other keys go on.
    """

    def __init__(self, after: Seconds, reason: str = "", *, only_key: bool = False) -> None:
        super().__init__(after)
        self.only_key = only_key
        self.reason = reason if isinstance(reason, str) else repr(reason)


class WaitFor(StopRun):
    """End this run, and run the job again when what it needs is there. The attempt does not count."""

    def __init__(self, reason: str = "") -> None:
        super().__init__(reason)
        self.reason = reason


class Discard(StopRun):
    """The job is not wanted any more."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason if isinstance(reason, str) else repr(reason)


class ReceiverExited(RuntimeError):
    """A receiver of a signal raised SystemExit or another BaseException, which ends nothing but itself."""
