"""The end of a job: what ``job_finished`` says of it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from .leases import Lease
from .outcomes import OutcomeName
from .states import Status

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
    if not status.is_terminal:
        return None
    return Ending(
        job_id=lease.job_id,
        task=of.task,
        queue=of.queue,
        attempt=lease.attempt,
        previous=Status.RUNNING,
        status=status,
        by=by,
        outcome=outcome,
        reason=reason,
    )
