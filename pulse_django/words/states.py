"""The statuses of a job."""

from __future__ import annotations

from enum import StrEnum


class Status(StrEnum):
    """Where a job is in its life. "Scheduled" is PENDING with a future ``next_run_at``: a display name only."""

    WAITING = "WAITING"  # for other jobs, for an event, or for a batch
    PENDING = "PENDING"  # waits for its time and for a worker
    RUNNING = "RUNNING"  # a worker holds its lease
    RETRYING = "RETRYING"  # a run failed; waits out its backoff
    COMPLETED = "COMPLETED"  # a run's result was accepted
    DEAD_LETTERED = "DEAD_LETTERED"  # gave up, with a reason; an operator may retry it
    CANCELLED = "CANCELLED"  # ended on request

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @property
    def is_claimable(self) -> bool:
        return self in CLAIMABLE


CLAIMABLE = (Status.PENDING, Status.RETRYING)
TERMINAL = (Status.COMPLETED, Status.DEAD_LETTERED, Status.CANCELLED)
