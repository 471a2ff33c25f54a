"""Outcomes. Every ended run has exactly one, and the ledger keeps its name."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from pulse_django.exceptions import PayloadError

from .payloads import ErrorReport, encode_result

# The prefix of the reason if a worker does not know the task and puts the job back, and if the job is given up.
UNKNOWN_TASK = "unknown task"
GIVEN_UP = f"given up: {UNKNOWN_TASK}"
# The prefix of the reason if a worker does not have the key of an encrypted job and puts it back.
CANNOT_DECRYPT = "cannot decrypt"


class OutcomeName(StrEnum):
    """The names of outcomes in the ledger."""

    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    TIMED_OUT = "TIMED_OUT"
    STALLED = "STALLED"
    WORKER_LOST = "WORKER_LOST"
    SNOOZED = "SNOOZED"
    WAITED = "WAITED"
    RELEASED = "RELEASED"
    CANCELLED = "CANCELLED"
    DISCARDED = "DISCARDED"


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned. Create it with ``returned``, which checks that the result can be stored."""

    name: ClassVar = OutcomeName.SUCCEEDED
    result: str | None = field(default=None, repr=False)  # JSON


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    name: ClassVar = OutcomeName.FAILED
    error: ErrorReport
    retry_in: timedelta | None = None  # from the handler; None: the retry policy decides


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The run exceeded its deadline."""

    name: ClassVar = OutcomeName.TIMED_OUT
    reason: str = "run exceeded its time limit"
    stack: str = field(default="", repr=False, compare=False)  # of the handler then, as text


@dataclass(frozen=True, slots=True)
class Stalled:
    """The run reported no progress for longer than its task allows, although its lease was extended."""

    name: ClassVar = OutcomeName.STALLED
    reason: str = "run made no progress"
    stack: str = field(default="", repr=False, compare=False)  # of the handler then, as text


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker died, froze or was disconnected: its lease expired, or its keeper saw it exit."""

    name: ClassVar = OutcomeName.WORKER_LOST
    reason: str = "worker lease expired"
    stack: str = field(default="", repr=False, compare=False)  # of the handlers of its process, if it could be read


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to run again later. The attempt does not count."""

    name: ClassVar = OutcomeName.SNOOZED
    delay: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """The handler waits for other jobs, a batch or an event. The attempt does not count."""

    name: ClassVar = OutcomeName.WAITED
    reason: str = ""  # names the jobs, the batch or the event


@dataclass(frozen=True, slots=True)
class Released:
    """The worker returned the job to the queue, and no handler is running it. The attempt does not count."""

    name: ClassVar = OutcomeName.RELEASED
    delay: timedelta = timedelta()
    reason: str = ""
    has_begun: bool = False  # its handler was called


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler stopped because a cancellation was requested."""

    name: ClassVar = OutcomeName.CANCELLED
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Discarded:
    """The handler found that the job is no longer wanted."""

    name: ClassVar = OutcomeName.DISCARDED
    reason: str = ""


Outcome = Succeeded | Failed | TimedOut | Stalled | WorkerLost | Snoozed | Waited | Released | Cancelled | Discarded


NOTHING_RETURNED = Succeeded()


def returned(value: Any, *, limit: int, sensitive: bool = False) -> Succeeded | Failed:
    """Turn a handler's return value into an outcome. A result that cannot be stored fails the run."""
    if value is None:
        return NOTHING_RETURNED
    try:
        return Succeeded(encode_result(value, limit=limit, sensitive=sensitive))
    except PayloadError as error:
        return Failed(ErrorReport.of(error))
