"""The statuses of a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Protocol

from .leases import Lease
from .outcomes import OutcomeName


class Status(StrEnum):
    """The status of a job. "Scheduled" is only a display name for PENDING with a future ``next_run_at``."""

    WAITING = "WAITING"  # waits for other jobs, an event or a batch
    PENDING = "PENDING"  # waits to be due and for a worker
    RUNNING = "RUNNING"  # a worker holds its lease
    RETRYING = "RETRYING"  # a run failed; waits for the next one
    COMPLETED = "COMPLETED"  # a run's result was accepted
    DEAD_LETTERED = "DEAD_LETTERED"  # failed for good, with a reason; an operator may retry it
    CANCELLED = "CANCELLED"  # ended on request


CLAIMABLE = (Status.PENDING, Status.RETRYING)
TERMINAL = (Status.COMPLETED, Status.DEAD_LETTERED, Status.CANCELLED)


# The end of a job, as the signal ``job_finished`` reports it.


NOT_STARTED_IN_TIME = "not started in time"


class EndedBy(StrEnum):
    """The part of Pulse that ended a job."""

    WORKER = "worker"  # it ran the handler
    KEEPER = "keeper"  # the process that ran the handler died
    # The lease or the job expired, the deadline passed, progress stopped, or no worker knows the task.
    WATCHDOG = "watchdog"
    NEEDS = "needs"  # a job or a batch that it needs was cancelled or became a dead letter
    CALLER = "caller"  # code or an operator cancelled the job, or ended its run


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """The facts about the end of a job."""

    job_id: int
    task: str
    queue: str
    attempt: int  # the last attempt; 0 if there was none
    previous: Status  # before the end
    status: Status  # after it: COMPLETED, DEAD_LETTERED or CANCELLED
    by: EndedBy
    outcome: OutcomeName | None  # of the run that ended with the job; None: it was not running
    reason: str = ""
    expired: bool = False  # the job did not start in time

    @classmethod
    def of_waiting(cls, job_id: int, task: str, queue: str, attempt: int, **facts: Any) -> Ending:
        """Return the end of a job that was cancelled while it was not running."""
        job: dict[str, Any] = {"job_id": job_id, "task": task, "queue": queue, "attempt": attempt}
        return cls(**job, status=Status.CANCELLED, outcome=None, **facts)


class HasTask(Protocol):
    """An object with a task and a queue, as a job or a claim."""

    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...


def run_ended(
    of: HasTask, lease: Lease, *, status: Status, by: EndedBy, outcome: OutcomeName, reason: str = ""
) -> Ending | None:
    """Return the end of the job if the run with this lease was its last one, or None."""
    if status not in TERMINAL:
        return None
    job: dict[str, Any] = {"job_id": lease.job_id, "task": of.task, "queue": of.queue, "attempt": lease.attempt}
    return Ending(**job, previous=Status.RUNNING, status=status, by=by, outcome=outcome, reason=reason)


# Eras: the partitions of the jobs table.
#
# Unfinished jobs and dead letters are in one era. The jobs that were completed or cancelled on one day are in the era
# of that day, which is its date as a number: 20261123.


HOT = 0
HOT_PARTITION = "pulse_django_job_hot"


def era_of(day: date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


def day_of(era: int) -> date | None:
    """Return the day of an era, or None if it is not a day."""
    try:
        return date(era // 10_000, era // 100 % 100, era % 100)
    except ValueError:
        return None
