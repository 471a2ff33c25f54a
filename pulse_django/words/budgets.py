"""How many runs a job may have, how many of its runs count, and until when it is retried."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol


class HasBudget(Protocol):
    """A row of the jobs table."""

    attempts: int
    refunds: int
    max_attempts: int
    losses: int
    max_losses: int | None
    free_losses: bool
    cancel_requested_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    give_up_after: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many runs of a job count, and how many it may have."""

    attempts: int
    refunds: int
    max_attempts: int
    losses: int = 0  # how many earlier runs ended with their worker
    max_losses: int | None = None  # with so many it is taken for what kills them; None: the fleet's limit
    free_losses: bool = False  # a lost worker costs no attempt
    cancel_requested: bool = False
    retries_for: float | None = None  # seconds after the claim in which a retry may be scheduled; None: for ever

    @classmethod
    def of(cls, job: HasBudget) -> Budget:
        return cls(
            attempts=job.attempts,
            refunds=job.refunds,
            max_attempts=job.max_attempts,
            losses=job.losses,
            max_losses=job.max_losses,
            free_losses=job.free_losses,
            cancel_requested=job.cancel_requested_at is not None,
            retries_for=None
            if job.started_at is None or job.give_up_after is None
            else retry_seconds(job.give_up_after, job.started_at.timestamp() - job.created_at.timestamp()),
        )

    @property
    def counted(self) -> int:
        """Attempts that count against the budget: a snooze, a hand-back or an operator's retry do not."""
        return self.attempts - self.refunds

    @property
    def left(self) -> int:
        return self.max_attempts - self.counted


def retry_seconds(give_up_after: timedelta | None, claimed_after: float) -> float | None:
    """Return for how long after a claim a retry may be scheduled, from the age of the job at the claim in seconds."""
    return None if give_up_after is None else give_up_after.total_seconds() - claimed_after
