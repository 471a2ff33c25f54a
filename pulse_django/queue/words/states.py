"""The statuses of a job."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Protocol

from .leases import Lease
from .outcomes import OutcomeName


class Status(StrEnum):
    """Where a job is in its life. "Scheduled" is PENDING with a future ``next_run_at``: a display name only."""

    WAITING = "WAITING"  # for other jobs, for an event, or for a batch
    PENDING = "PENDING"  # waits for its time and for a worker
    RUNNING = "RUNNING"  # a worker holds its lease
    RETRYING = "RETRYING"  # a run failed; waits out its backoff
    COMPLETED = "COMPLETED"  # a run's result was accepted
    DEAD_LETTERED = "DEAD_LETTERED"  # gave up, with a reason; an operator may retry it
    CANCELLED = "CANCELLED"  # ended on request


CLAIMABLE = (Status.PENDING, Status.RETRYING)
TERMINAL = (Status.COMPLETED, Status.DEAD_LETTERED, Status.CANCELLED)


# The end of a job: what ``job_finished`` says of it.


NOT_STARTED_IN_TIME = "not started in time"


class EndedBy(StrEnum):
    """Who ended a job."""

    WORKER = "worker"  # it ran the handler
    KEEPER = "keeper"  # the process that ran the handler died
    # The lease ran out, the deadline passed, progress stopped, no worker knows the task, or the job expired.
    WATCHDOG = "watchdog"
    NEEDS = "needs"  # another job or a batch that it needs was cancelled or is a dead letter
    CALLER = "caller"  # code or an operator cancelled the job, or took it from its worker


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a job came to its end."""

    job_id: int
    task: str
    queue: str
    attempt: int  # the last one; 0 if there was none
    previous: Status  # what the job was before
    status: Status  # what it is now: COMPLETED, DEAD_LETTERED or CANCELLED
    by: EndedBy
    outcome: OutcomeName | None  # of the run that ended with the job; None: no run did
    reason: str = ""
    expired: bool = False  # it had not started in time

    @classmethod
    def of_waiting(cls, job_id: int, task: str, queue: str, attempt: int, **facts: Any) -> Ending:
        """Return the end of a job that was cancelled while no worker had it."""
        job: dict[str, Any] = {"job_id": job_id, "task": task, "queue": queue, "attempt": attempt}
        return cls(**job, status=Status.CANCELLED, outcome=None, **facts)


class HasTask(Protocol):
    """A job, a claim or whatever else knows its task."""

    @property
    def task(self) -> str: ...
    @property
    def queue(self) -> str: ...


def run_ended(
    of: HasTask, lease: Lease, *, status: Status, by: EndedBy, outcome: OutcomeName, reason: str = ""
) -> Ending | None:
    """Return the end of the job, if the run with this lease was its last."""
    if status not in TERMINAL:
        return None
    job: dict[str, Any] = {"job_id": lease.job_id, "task": of.task, "queue": of.queue, "attempt": lease.attempt}
    return Ending(**job, previous=Status.RUNNING, status=status, by=by, outcome=outcome, reason=reason)


# Eras, which are the partitions of the table of jobs.
#
# Jobs that are not over and dead letters are in one, and the jobs that were completed or cancelled on one day in
# another. The era of a day is its date as a number: 20261123.


HOT = 0
HOT_PARTITION = "pulse_django_job_hot"


def era_of(day: date) -> int:
    return day.year * 10_000 + day.month * 100 + day.day


def day_of(era: int) -> date | None:
    """Return the day of an era; None if it is none."""
    try:
        return date(era // 10_000, era // 100 % 100, era % 100)
    except ValueError:
        return None
