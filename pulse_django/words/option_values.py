"""The options as attributes.

``JobOptions`` and ``Options`` are those of tasks and of new jobs, ``ClaimedOptions`` those that a claim returns with
each job.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from .limiting import KeySource, Limit
from .options import Isolation
from .retry_policies import RetryPolicy
from .timings import Timing
from .uniqueness import Unique


# No slots of their own: with any, a task could not inherit from Django's as well.
@dataclass(frozen=True, kw_only=True)
class JobOptions:
    """The options that a job keeps in a column of its row."""

    __slots__ = ()

    max_attempts: int | None = None
    timeout: timedelta | None = None
    lease: timedelta | None = None
    stall_after: timedelta | None = None
    max_losses: int | None = None
    free_losses: bool = False
    idempotency_key: str | None = None
    give_up_after: timedelta | None = None
    weight: int = 1


@dataclass(frozen=True, kw_only=True)
class Options(JobOptions):
    """All options but Django's own."""

    __slots__ = ()

    aliases: tuple[str, ...] = ()
    retry: RetryPolicy | None = None
    isolation: str = Isolation.THREAD
    atomic: bool = False
    masked: tuple[str, ...] = ()
    search: tuple[str, ...] = ()
    encrypted: bool = False
    schedule: Timing | None = None
    unique: Unique | None = None
    limit: Limit | None = None
    key: KeySource | None = None
    share: KeySource | None = None
    chunk: int | None = None
    within: timedelta | None = None
    expires: datetime | timedelta | None = None
    tags: tuple[str, ...] = ()
    meta: str | None = None  # as JSON
    database: str | None = None


class ClaimedOptions(NamedTuple):
    """The options that a claim returns with each job."""

    timeout: timedelta | None = None
    stall_after: timedelta | None = None
    max_losses: int | None = None
    free_losses: bool = False
    give_up_after: timedelta | None = None
    weight: int = 1
