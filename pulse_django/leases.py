"""What a worker holds: its identity, the right to write, and the work that came with it."""

from __future__ import annotations

import itertools
import os
import re
import secrets
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

# 80 characters of name, 12 of boot id and 19 of serial stay far below the column's 160.
MAX_NAME = 80
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")


@dataclass(frozen=True, slots=True, order=True)
class Lease:
    """The right to write to one job. Worker-side verbs take a Lease, never a Job."""

    job_id: int
    holder: str  # unique per claim statement, so that no two runs share (holder, attempt)
    attempt: int  # the job's ``attempts`` after the claim; never minted twice, never lowered


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many runs of a job count, and how many it may have."""

    attempts: int
    refunds: int
    max_attempts: int
    cancel_requested: bool = False

    @property
    def counted(self) -> int:
        """Attempts that count against the budget: a snooze, a hand-back or an operator's retry do not."""
        return self.attempts - self.refunds

    @property
    def left(self) -> int:
        return self.max_attempts - self.counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A lease together with the work it was granted for."""

    lease: Lease
    token: int  # rises with every claim of any job: fences resources outside the job table
    task: str
    queue: str
    priority: int
    args: list[Any]
    kwargs: dict[str, Any]
    refunds: int
    max_attempts: int
    losses: int
    ttl: timedelta  # the lease runs out this long after the last heartbeat
    progress: Any  # what an earlier attempt last saved, or None
    parent_id: int | None

    @property
    def job_id(self) -> int:
        return self.lease.job_id

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def budget(self) -> Budget:
        return Budget(attempts=self.attempt, refunds=self.refunds, max_attempts=self.max_attempts)


def _new_boot_id() -> str:
    return secrets.token_hex(6)


@dataclass(frozen=True, slots=True)
class Identity:
    """One start of one worker process. Mints a new holder for every claim statement.

    The boot id is random and the serial counts up, so a reused pod name, a recycled pid or a database that lost a
    committed claim can never bring a (holder, attempt) pair back.
    """

    name: str
    boot_id: str = field(default_factory=_new_boot_id)
    _serials: Iterator[int] = field(default_factory=lambda: itertools.count(1), repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", _printable(self.name))

    @classmethod
    def of_this_process(cls) -> Identity:
        return cls(f"{socket.gethostname()}-{os.getpid()}")

    def mint_holder(self) -> str:
        return f"{self.name}:{self.boot_id}:{next(self._serials)}"


def _printable(name: str) -> str:
    """Keep what is safe in a log line, a column and a page: names come from hosts and environments."""
    return _UNPRINTABLE.sub("_", name)[:MAX_NAME] or "worker"
