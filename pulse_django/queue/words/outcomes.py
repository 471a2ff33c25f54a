"""What happened to a run. Every ended run has exactly one Outcome, and its name is kept in the ledger."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar

from pulse_django.exceptions import PayloadError

from .payloads import ErrorReport, encode_result

# Begins the reason for which a worker puts a job back whose task it does not know; and for which it is given up.
UNKNOWN_TASK = "unknown task"
GIVEN_UP = f"given up: {UNKNOWN_TASK}"
# Begins the reason for which a worker puts an encrypted job back whose key it does not have.
CANNOT_DECRYPT = "cannot decrypt"


class OutcomeName(StrEnum):
    """How the ledger spells an Outcome."""

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
    """The handler returned. Make it with ``returned``, which checks that the result can be stored."""

    name: ClassVar = OutcomeName.SUCCEEDED
    result: str | None = field(default=None, repr=False)  # JSON


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised."""

    name: ClassVar = OutcomeName.FAILED
    error: ErrorReport
    retry_in: timedelta | None = None  # that the handler said; None: its policy decides


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The run was past its deadline."""

    name: ClassVar = OutcomeName.TIMED_OUT
    reason: str = "run exceeded its time limit"
    stack: str = field(default="", repr=False, compare=False)  # of the handler then, as text


@dataclass(frozen=True, slots=True)
class Stalled:
    """The run made no progress for longer than its task allows, though its lease was being extended."""

    name: ClassVar = OutcomeName.STALLED
    reason: str = "run made no progress"
    stack: str = field(default="", repr=False, compare=False)  # of the handler then, as text


@dataclass(frozen=True, slots=True)
class WorkerLost:
    """The worker died, froze or was cut off: its lease ran out, or its keeper saw it go."""

    name: ClassVar = OutcomeName.WORKER_LOST
    reason: str = "worker lease expired"
    stack: str = field(default="", repr=False, compare=False)  # of the handlers of its process, if that could be asked


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to be run again later; the attempt does not count."""

    name: ClassVar = OutcomeName.SNOOZED
    delay: timedelta
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Waited:
    """The handler needs other jobs, a batch or an event first; the attempt does not count."""

    name: ClassVar = OutcomeName.WAITED
    reason: str = ""  # what it waits for


@dataclass(frozen=True, slots=True)
class Released:
    """The worker handed the job back; the attempt does not count. Only when no handler is running it any more."""

    name: ClassVar = OutcomeName.RELEASED
    delay: timedelta = timedelta()
    reason: str = ""
    has_begun: bool = False  # its handler was called


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The handler stopped because it was asked to."""

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
    """Judge a handler's return value: a result that cannot be stored is a failure with a reason, not a stuck job."""
    if value is None:
        return NOTHING_RETURNED
    try:
        return Succeeded(encode_result(value, limit=limit, sensitive=sensitive))
    except PayloadError as error:
        return Failed(ErrorReport.of(error))
