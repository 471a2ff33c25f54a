"""What a worker holds: the right to write, and the work that came with it.

Both are tuples with names: a worker makes, hashes and compares several for every job that it runs.
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

_DECODER = json.JSONDecoder()  # json.loads() looks for whitespace first, and PostgreSQL writes none around


class Lease(NamedTuple):
    """The right to write to one job. Worker-side verbs take a Lease, never a Job."""

    job_id: int
    holder: str  # unique per claim statement, so that no two runs share (holder, attempt)
    attempt: int  # the job's ``attempts`` after the claim; never minted twice, never lowered


class Claim(NamedTuple):
    """A lease together with the work it was granted for.

    Payloads stay JSON until they are read: one that cannot be read must fail its own job and no other of the batch.
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
    ttl_seconds: float  # the lease runs out this long after the last heartbeat
    parent_id: int | None
    created_epoch: float  # by the server's clock, in seconds since 1970
    started_epoch: float
    due_epoch: float  # the run was not to begin before
    trace: str | None = None
    sensitive: str | None = None  # what its task hid when the job was enqueued, as the text of ``Masks``
    meta_json: str | None = None
    lane_key: str = ""
    is_probe: bool = False  # its end says whether the breaker of its limit closes
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
        """The characters of its payloads."""
        return len(self.args_json) + len(self.kwargs_json) + len(self.progress_json or "")

    @property
    def args(self) -> list[Any]:
        return [] if self.args_json == "[]" else list(_DECODER.raw_decode(self.args_json)[0])

    @property
    def kwargs(self) -> dict[str, Any]:
        return {} if self.kwargs_json == "{}" else dict(_DECODER.raw_decode(self.kwargs_json)[0])

    @property
    def progress(self) -> Any:
        """What an earlier attempt last saved, or None."""
        return None if self.progress_json is None else json.loads(self.progress_json)

    @property
    def is_encrypted(self) -> bool:
        return is_encrypted(self.sensitive)

    @property
    def meta(self) -> dict[str, Any]:
        """What the job was labelled with when it was enqueued."""
        try:
            meta = {} if self.meta_json is None else _DECODER.raw_decode(self.meta_json)[0]
        except (ValueError, RecursionError):  # written by hand
            meta = {}
        return meta if isinstance(meta, dict) else {}

    @property
    def patience_seconds(self) -> float:
        """In how many seconds its run is over if no beat comes: it loses its lease, or seems to stand still."""
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
        """When the claim was granted, by the server's clock."""
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


# The identity of one start of a worker process, and the holders that it makes.


# Name, boot id and 19 digits of serial stay below the column's 160 characters.
MAX_NAME = 80
MAX_BOOT_ID = 40
MAX_HOST = 255
_UNPRINTABLE = re.compile(r"[^\x21-\x7e]+")


class Identity:
    """Mints a new holder for every claim statement.

    The boot id is random and the serial counts up, so a reused pod name, a recycled pid or a database that lost a
    committed claim can never bring a (holder, attempt) pair back. Nor can a fork: the child gets a boot id of its own.
    """

    def __init__(self, name: str, boot_id: str | None = None) -> None:
        self.name = printable(name, MAX_NAME)
        self.boot_id = printable(boot_id, MAX_BOOT_ID) if boot_id else _new_boot_id()
        self._pid = os.getpid()
        self._serials = itertools.count(1)
        self.last_holder = ""  # that was minted

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
    """Keep what is safe in a log line, a column and a page: names come from hosts and environments."""
    return _UNPRINTABLE.sub("_", text)[:longest] or "worker"
