"""One run of a handler: the state that its worker and its handler share while it goes on."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from pulse_django import conf
from pulse_django.exceptions import DeadlinePassed, JobCancelled, LeaseLost
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.masks import PROGRESS
from pulse_django.queue.words.outcomes import Outcome
from pulse_django.queue.words.payloads import encode_progress
from pulse_django.queue.words.retry_policies import RetryPolicy, delay_of

from .codec import codec
from .registry import registry

if TYPE_CHECKING:
    from pulse_django.workflows.durable_steps import StepNames

    from .judging import Performed


Clock = Callable[[], float]

# Seconds. Shorter asks in vain more often; longer keeps a finished job waiting for no reason.
PAUSE_BEFORE_LOCKED_ROW = 0.05


class Tether(Protocol):
    """Where a keeper leaves its answers: it may know more than this process has had time to hear."""

    def extended_at(self) -> float: ...
    def is_lost(self) -> bool: ...
    def is_cancelled(self) -> bool: ...


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """Shared between the thread that runs the handler and those that keep its lease."""

    claim: Claim
    _: KW_ONLY
    # By this host's monotonic clock, *before* the claim was sent: the lease cannot be older.
    granted_at: float = field(default_factory=time.monotonic)
    clock: Clock = time.monotonic
    beat: Callable[[Run], None] | None = None  # extends the lease at once, for callers without a background heartbeat
    alias: str | None = None  # of the database that the job lives in; None: where the router says
    tether: Tether | None = None
    slots: int = 1  # of its worker that it takes while it waits for one or runs
    chunk: ChunkRun | None = None  # that takes the slot for it
    after_step: Callable[[str], object] | None = None  # for tests: called when a step is written down
    steps: StepNames | None = None  # None: it has had no step yet
    has_notes: bool = False  # it completed its job, and others may wait for that
    completed: bool = False  # by the handler itself, in its own transaction
    refuses: str = ""  # the limit or the lane key that it has closed: what waits under it must not begin
    cancelled: bool = False
    lost: bool = False
    was_out_of_touch: bool = False  # its handler was asked to stop because it was not known who has the job
    reported: bool = False  # there is a report on this run; a later one is a late outcome
    verdict: Outcome | None = None  # of the one that made the handler stop
    begun_at: float | None = None
    asked_to_stop_at: float | None = None  # when it was asked to stop; it may ignore that
    noted_at: float | None = None  # when it last noted progress
    waits_since: float = field(init=False)  # for a slot
    _extended_at: float = field(init=False)
    _progress: str | None = None  # not yet on its way
    _saved: str | None = None  # the latest of all
    _lock: Lock = field(default_factory=Lock)
    _is_decrypted: bool = False

    def __post_init__(self) -> None:
        self.waits_since = self._extended_at = self.granted_at

    def decrypt(self) -> None:
        """Put the arguments in the clear, if the job is encrypted. Raise if they cannot be decrypted."""
        if self.claim.is_encrypted and not self._is_decrypted:
            self.claim = codec().opened(self.claim)
            self._is_decrypted = True

    # The handler's side

    def check(self) -> None:
        """Raise where the handler should stop."""
        # On an event loop the database cannot be asked without waiting, and what is known must do.
        if self.beat is not None and asyncio._get_running_loop() is None:
            self.beat(self)
        self.look()
        if self.lost:
            raise LeaseLost("another run has taken over this job")
        if self.verdict is not None and not self.completed:
            raise DeadlinePassed(getattr(self.verdict, "reason", "the run was ended"))
        if self.lease_remaining() <= 0:
            self.was_out_of_touch = True
            raise LeaseLost("another run may have taken over this job")
        if self.cancelled:
            raise JobCancelled("the job was asked to stop")

    def lease_remaining(self) -> float:
        """Seconds for which the lease surely holds, by this host's own monotonic clock."""
        extended_at = self._extended_at
        if self.tether is not None:
            extended_at = max(extended_at, self.tether.extended_at())
        return extended_at + self.claim.ttl_seconds - self.clock()

    def note_progress(self, payload: Mapping[str, Any], *, limit: int) -> None:
        """Keep progress for the next heartbeat; only the latest is worth sending."""
        self.take_over_progress(codec().stored(self.claim, encode_progress(dict(payload), limit=limit), PROGRESS))

    def take_over_progress(self, encoded: str) -> None:
        """Keep progress that a handler in another process noted."""
        self.noted_at = self.clock()
        with self._lock:
            self._progress = self._saved = encoded

    def is_last_attempt(self, policy: RetryPolicy | None) -> bool:
        """Say whether it is certain that no run follows if this one fails."""
        budget = self.claim.budget
        if budget.left <= 0 or budget.retries_for is None:
            return budget.left <= 0
        # Timeouts and lost workers follow the fleet's curve, whatever the task's own is.
        fleet = conf.current().backoff
        curves = (fleet, fleet if policy is None or policy.backoff is None else policy.backoff)
        counted = budget.counted if budget.count_lost_workers else min(budget.counted, budget.losses + 1)
        soonest = min(delay_of(curve, counted, lambda: 0.0) for curve in curves)
        return soonest.total_seconds() > budget.retries_for - (self.clock() - self.granted_at)

    @property
    def parent_id(self) -> int | None:
        """The parent of the jobs that are enqueued here."""
        return self.claim.job_id

    # The worker's side

    @property
    def is_out_of_touch(self) -> bool:
        """Whether it was asked to stop because its lease was not extended in time. Another run may have the job."""
        return self.asked_to_stop_at is not None and self.verdict is None and not self.lost

    def look(self) -> None:
        """Take over what the keeper has learned."""
        if self.tether is not None:
            self.lost = self.lost or self.tether.is_lost()
            self.cancelled = self.cancelled or self.tether.is_cancelled()

    def take_progress(self) -> str | None:
        """Return what a heartbeat should carry, once."""
        if self._progress is None:
            return None
        with self._lock:
            progress, self._progress = self._progress, None
        return progress

    def give_back(self, progress: str | None) -> None:
        """Keep what could not be delivered, unless there is newer."""
        with self._lock:
            if self._progress is None:
                self._progress = progress

    def last_progress(self) -> str | None:
        """Return what the final report should carry: a heartbeat that was to bring it may never have been sent."""
        self._progress = None
        return self._saved

    def extended(self, sent_at: float) -> None:
        """Note a heartbeat that succeeded, by the instant before it was sent."""
        self._extended_at = max(self._extended_at, sent_at)

    def is_first_report(self) -> bool:
        """Return True once: to the first that reports on this run."""
        with self._lock:
            first, self.reported = not self.reported, True
        return first

    def overdue(self, now: float) -> bool:
        """Past the deadline that the claim set."""
        timeout = self.claim.options.timeout
        return timeout is not None and now - self.granted_at > timeout.total_seconds()

    def stalled(self, now: float) -> bool:
        """Without progress for longer than its task allows."""
        most: timedelta | None = self.claim.options.progress_timeout
        return most is not None and now - (self.noted_at or self.granted_at) > most.total_seconds()


_current: ContextVar[Run | None] = ContextVar("pulse_run", default=None)


def current_run() -> Run | None:
    """The run whose handler is being executed here: what it enqueues are its children."""
    return _current.get()


class running:  # noqa: N801 - used as a function; a generator would take five times as long
    """Make a run the current one, for a block."""

    __slots__ = ("_run", "_token")

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Run:
        self._token = _current.set(self._run)
        return self._run

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def end_if_forked(pid: int) -> None:
    """End a process that a handler forked and that returned from it: anything it did would speak for the run."""
    if os.getpid() != pid:
        os._exit(0)


# The runs of which one call of a handler takes the jobs.


LOSSES_UNTIL_ALONE = 2  # then a job is in no chunk, and gets a process of its own, for the sake of its neighbours


def is_gathered(claim: Claim) -> bool:
    """Say whether a job may be in a chunk with others."""
    return claim.task in registry.chunked and claim.losses < LOSSES_UNTIL_ALONE


class ChunkRun(Run):
    """What an executor runs: it takes a slot, and its members have the leases. Nothing is reported on itself."""

    __slots__ = ("members", "report")

    def __init__(self, members: Sequence[Run], report: Callable[[Run, Performed], None] | None = None) -> None:
        """``report`` takes what is known of a member before the handler is over. Any thread may call it."""
        first = members[0]
        super().__init__(first.claim, granted_at=first.granted_at, alias=first.alias)
        self.members = list(members)
        self.report = report

    @property
    def parent_id(self) -> None:
        """It is not known for which of its jobs the handler enqueues one."""
        return

    def is_of_no_use(self) -> bool:
        """Say whether no member is left whose handler may go on."""
        return all(one.reported or one.completed or one.asked_to_stop_at or one.cancelled for one in self.members)
