"""What a worker holds: the right to write, and the work that came with it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from .budgets import Budget


@dataclass(frozen=True, slots=True, order=True)
class Lease:
    """The right to write to one job. Worker-side verbs take a Lease, never a Job."""

    job_id: int
    holder: str  # unique per claim statement, so that no two runs share (holder, attempt)
    attempt: int  # the job's ``attempts`` after the claim; never minted twice, never lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease together with the work it was granted for.

    Payloads stay JSON until somebody asks: one that cannot be read must fail its own job and no other of the batch.
    """

    lease: Lease
    token: int  # rises with every claim of any job: fences resources outside the job table
    task: str
    queue: str
    priority: int
    args_json: str
    kwargs_json: str
    progress_json: str | None
    refunds: int
    max_attempts: int
    losses: int
    ttl: timedelta  # the lease runs out this long after the last heartbeat
    parent_id: int | None
    created_at: datetime
    started_at: datetime  # by the server's clock, as the claim granted it
    timeout: timedelta | None  # the longest this run may take
    stall_after: timedelta | None  # the longest it may go without progress

    @property
    def job_id(self) -> int:
        return self.lease.job_id

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def args(self) -> list[Any]:
        return list(json.loads(self.args_json))

    @property
    def kwargs(self) -> dict[str, Any]:
        return dict(json.loads(self.kwargs_json))

    @property
    def progress(self) -> Any:
        """What an earlier attempt last saved, or None."""
        return None if self.progress_json is None else json.loads(self.progress_json)

    @property
    def budget(self) -> Budget:
        return Budget(attempts=self.attempt, refunds=self.refunds, max_attempts=self.max_attempts)
