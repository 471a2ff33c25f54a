"""Leases, which are the right of a worker to write to a job, and claims, which are a lease with the work.

Both are named tuples for speed: a worker makes, hashes and compares several for each job.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from .decisions import Budget, retry_seconds
from .display import without
from .masks import is_encrypted
from .options import ClaimedOptions

_DECODER = json.JSONDecoder()  # faster than json.loads(), which looks for whitespace around the text


class Lease(NamedTuple):
    """The right to write to one job. The verbs for workers take a Lease, never a Job."""

    job_id: int
    holder: str  # unique for each claim statement, so that no two runs share (holder, attempt)
    attempt: int  # the job's ``attempts`` after the claim; never used twice, never lowered


class Claim(NamedTuple):
    """A lease with the job that it was granted for.

    Payloads stay JSON until they are read: an unreadable one must fail only its own job, not the batch.
    """

    lease: Lease
    token: int  # grows with every claim of any job: a fencing token for resources outside the jobs table
    task: str
    queue: str
    priority: int
    args_json: str
    kwargs_json: str
    progress_json: str | None
    refunds: int
    max_attempts: int
    losses: int
    ttl_seconds: float  # the lease expires so long after the last heartbeat
    parent_id: int | None
    created_epoch: float  # by the server's clock, in seconds since 1970
    started_epoch: float
    due_epoch: float  # when the job was due
    trace: str | None = None
    sensitive: str | None = None  # the arguments that its task hid at enqueue, as the text of ``Masks``
    meta_json: str | None = None
    lane_key: str = ""
    is_probe: bool = False  # its outcome decides whether the circuit breaker of its limit closes
    options: ClaimedOptions = ClaimedOptions()

    def __repr__(self) -> str:
        return without(self, "args_json", "kwargs_json", "progress_json", "meta_json")

    @property
    def job_id(self) -> int:
        return self.lease.job_id

    @property
    def attempt(self) -> int:
        return self.lease.attempt

    @property
    def size(self) -> int:
        """Return the number of characters of its payloads."""
        return len(self.args_json) + len(self.kwargs_json) + len(self.progress_json or "")

    @property
    def args(self) -> list[Any]:
        return [] if self.args_json == "[]" else list(_DECODER.raw_decode(self.args_json)[0])

    @property
    def kwargs(self) -> dict[str, Any]:
        return {} if self.kwargs_json == "{}" else dict(_DECODER.raw_decode(self.kwargs_json)[0])

    @property
    def progress(self) -> Any:
        """Return the progress that an earlier attempt saved last, or None."""
        return None if self.progress_json is None else json.loads(self.progress_json)

    @property
    def is_encrypted(self) -> bool:
        return is_encrypted(self.sensitive)

    @property
    def meta(self) -> dict[str, Any]:
        """Return the meta that the job got when it was enqueued."""
        try:
            meta = {} if self.meta_json is None else _DECODER.raw_decode(self.meta_json)[0]
        except (ValueError, RecursionError):  # it was written by hand
            meta = {}
        return meta if isinstance(meta, dict) else {}

    @property
    def patience_seconds(self) -> float:
        """Return the seconds until a run without heartbeats ends: its lease expires, or it counts as stalled."""
        progress_timeout = self.options.progress_timeout
        return self.ttl_seconds if progress_timeout is None else min(self.ttl_seconds, progress_timeout.total_seconds())

    @property
    def ttl(self) -> timedelta:
        return timedelta(seconds=self.ttl_seconds)

    @property
    def created_at(self) -> datetime:
        return datetime.fromtimestamp(self.created_epoch, tz=UTC)

    @property
    def started_at(self) -> datetime:
        """Return when the claim was granted, by the server's clock."""
        return datetime.fromtimestamp(self.started_epoch, tz=UTC)

    @property
    def budget(self) -> Budget:
        return Budget(
            attempts=self.attempt,
            refunds=self.refunds,
            max_attempts=self.max_attempts,
            losses=self.losses,
            max_lost_workers=self.options.max_lost_workers,
            count_lost_workers=self.options.count_lost_workers,
            retries_for=retry_seconds(self.options.give_up_after, self.started_epoch - self.created_epoch),
        )


# The identity of one start of a worker process, and the holders that it creates.


# Name, boot id and a serial of 19 digits fit into the 160 characters of the column.
MAX_NAME = 80
MAX_BOOT_ID = 40
MAX_HOST = 255
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")


class Identity:
    """Creates a new holder for every claim statement.

    The boot id is random and the serial counts up. So a reused pod name, a reused process id or a database that lost a
    committed claim cannot repeat a pair of holder and attempt. After a fork, the child gets its own boot id.
    """

    def __init__(self, name: str, boot_id: str | None = None) -> None:
        self.name = printable(name, MAX_NAME)
        self.boot_id = printable(boot_id, MAX_BOOT_ID) if boot_id else _new_boot_id()
        self._pid = os.getpid()
        self._serials = itertools.count(1)
        self.last_holder = ""  # the latest holder

    def mint_holder(self) -> str:
        if self._pid != os.getpid():
            self.boot_id, self._pid = _new_boot_id(), os.getpid()
        self.last_holder = f"{self.name}:{self.boot_id}:{next(self._serials)}"
        return self.last_holder

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {self.boot_id!r})"


def _new_boot_id() -> str:
    return secrets.token_hex(6)


def printable(text: str, longest: int) -> str:
    """Keep only characters that are safe in logs, columns and pages: names come from hosts and environments."""
    return _UNPRINTABLE.sub("_", text)[:longest] or "worker"
