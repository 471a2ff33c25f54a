"""One run of a handler: the state that the worker and the handler share during the run."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from datetime import timedelta
from threading import Lock
from typing import Any, Protocol

from pulse_django import conf
from pulse_django.exceptions import DeadlinePassed, JobCancelled, LeaseLost
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.masks import PROGRESS
from pulse_django.queue.words.outcomes import Outcome, Released
from pulse_django.queue.words.payloads import ErrorReport, encode_progress
from pulse_django.queue.words.retry_policies import RetryPolicy, delay_of
from pulse_django.queue.words.verb_results import Report

from .codec import codec
from .registry import Task, TaskResult, registry

Clock = Callable[[], float]

# Seconds. Shorter pauses waste more tries. Longer ones delay the end of a job.
PAUSE_BEFORE_LOCKED_ROW = 0.05
OUT_OF_TOUCH = Released(timedelta(), "the lease was not extended in time", has_begun=True)


class Tether(Protocol):
    """The memory in which a keeper writes news about a lease, which this process may not have received yet."""

    def extended_at(self) -> float: ...
    def is_lost(self) -> bool: ...
    def is_cancelled(self) -> bool: ...


@dataclass(slots=True)
class StepNames:
    """The durable steps of a run."""

    done: dict[str, str | None] = field(repr=False)  # the result of each, as JSON
    used: set[str] = field(default_factory=set)  # the names that this run has used


@dataclass(slots=True, eq=False, repr=False)
class Run:
    """A run, shared by the thread of the handler and the threads that keep its lease."""

    claim: Claim
    _: KW_ONLY
    # By this host's monotonic clock, *before* the claim was sent: the lease cannot have begun earlier.
    granted_at: float = field(default_factory=time.monotonic)
    clock: Clock = time.monotonic
    beat: Callable[[Run], None] | None = None  # extends the lease at once, if there is no background heartbeat
    alias: str | None = None  # the database of the job; None: as the router decides
    tether: Tether | None = None
    slots: int = 1  # the slots that it takes while it waits or runs
    chunk: ChunkRun | None = None  # the chunk that takes the slot for it
    after_step: Callable[[str], object] | None = None  # for tests: called when a durable step is stored
    steps: StepNames | None = None  # None: no step yet
    has_notes: bool = False  # it completed its job, and other jobs may wait for this one
    completed: bool = False  # by the handler, with context.atomic()
    refuses: str = ""  # the limit or lane key that it paused: jobs of it that wait here must not begin
    cancelled: bool = False
    lost: bool = False
    was_out_of_touch: bool = False  # the handler was asked to stop because its lease was uncertain
    reported: bool = False  # the run has a report; another one would be a late outcome
    verdict: Outcome | None = None  # the reason why the handler was stopped
    begun_at: float | None = None
    asked_to_stop_at: float | None = None  # when the handler was asked to stop, which it may ignore
    noted_at: float | None = None  # when the handler last reported progress
    waits_since: float = field(init=False)  # for a slot
    _extended_at: float = field(init=False)
    _progress: str | None = None  # not yet given to a heartbeat
    _saved: str | None = None  # the latest, sent or not
    _lock: Lock = field(default_factory=Lock)
    _is_decrypted: bool = False

    def __post_init__(self) -> None:
        self.waits_since = self._extended_at = self.granted_at

    def decrypt(self) -> None:
        """Decrypt the arguments of an encrypted job. Raise if they cannot be decrypted."""
        if self.claim.is_encrypted and not self._is_decrypted:
            self.claim = codec().opened(self.claim)
            self._is_decrypted = True

    # Called by the handler

    def check(self) -> None:
        """Raise if the handler should stop."""
        # An event loop must not wait for the database, so only known facts are used there.
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
        """Return for how many seconds the lease is still valid, by this host's monotonic clock."""
        extended_at = self._extended_at
        if self.tether is not None:
            extended_at = max(extended_at, self.tether.extended_at())
        return extended_at + self.claim.ttl_seconds - self.clock()

    def note_progress(self, payload: Mapping[str, Any], *, limit: int) -> None:
        """Keep progress for the next heartbeat. Only the latest is sent."""
        self.take_over_progress(codec().stored(self.claim, encode_progress(dict(payload), limit=limit), PROGRESS))

    def take_over_progress(self, encoded: str) -> None:
        """Keep progress that a handler in another process reported."""
        self.noted_at = self.clock()
        with self._lock:
            self._progress = self._saved = encoded

    def is_last_attempt(self, policy: RetryPolicy | None) -> bool:
        """Return whether it is certain that no run follows if this one fails."""
        budget = self.claim.budget
        if budget.left <= 0 or budget.retries_for is None:
            return budget.left <= 0
        # Timeouts and lost workers use the backoff of the settings, not that of the task.
        fleet = conf.current().backoff
        curves = (fleet, fleet if policy is None or policy.backoff is None else policy.backoff)
        counted = budget.counted if budget.count_lost_workers else min(budget.counted, budget.losses + 1)
        soonest = min(delay_of(curve, counted, lambda: 0.0) for curve in curves)
        return soonest.total_seconds() > budget.retries_for - (self.clock() - self.granted_at)

    @property
    def parent_id(self) -> int | None:
        """Return the parent of jobs that the handler enqueues."""
        return self.claim.job_id

    # Called by the worker

    @property
    def is_out_of_touch(self) -> bool:
        """Return whether it was asked to stop because its lease may be lost: it was not extended in time."""
        return self.asked_to_stop_at is not None and self.verdict is None and not self.lost

    def look(self) -> None:
        """Read the news of the keeper."""
        if self.tether is not None:
            self.lost = self.lost or self.tether.is_lost()
            self.cancelled = self.cancelled or self.tether.is_cancelled()

    def take_progress(self) -> str | None:
        """Return the progress for the next heartbeat, once."""
        if self._progress is None:
            return None
        with self._lock:
            progress, self._progress = self._progress, None
        return progress

    def give_back(self, progress: str | None) -> None:
        """Keep progress that a heartbeat could not save, unless there is newer progress."""
        with self._lock:
            if self._progress is None:
                self._progress = progress

    def last_progress(self) -> str | None:
        """Return the progress for the final report: the heartbeat with it may never have been sent."""
        self._progress = None
        return self._saved

    def extended(self, sent_at: float) -> None:
        """Note a successful heartbeat. ``sent_at`` is the instant before it was sent."""
        self._extended_at = max(self._extended_at, sent_at)

    def is_first_report(self) -> bool:
        """Return True once, to the first caller that reports on this run."""
        with self._lock:
            first, self.reported = not self.reported, True
        return first

    def overdue(self, now: float) -> bool:
        """Return whether the run is past its deadline."""
        timeout = self.claim.options.timeout
        return timeout is not None and now - self.granted_at > timeout.total_seconds()

    def stalled(self, now: float) -> bool:
        """Return whether the run has reported no progress for longer than its task allows."""
        most: timedelta | None = self.claim.options.progress_timeout
        return most is not None and now - (self.noted_at or self.granted_at) > most.total_seconds()


@dataclass(slots=True)
class Performed:
    """A run whose handler has ended. Without a report, nothing is left to write."""

    run: Run
    task: Task | None
    report: Report | None
    error: BaseException | None = None
    result: TaskResult | None = field(default=None, repr=False)  # from the context of its handler
    ended_at: float | None = None  # by the monotonic clock
    afterwards: ErrorReport | None = None  # the error that the handler raised after context.atomic() completed the job
    members: list[Performed] = field(default_factory=list)  # of a chunk: members that were not reported yet

    @property
    def is_out_of_touch(self) -> bool:
        """Return whether a job is released although its handler has begun."""
        mine = self.report is not None and self.report.outcome is OUT_OF_TOUCH
        return mine or any(one.is_out_of_touch for one in self.members)


_current: ContextVar[Run | None] = ContextVar("pulse_run", default=None)


def current_run() -> Run | None:
    """Return the run whose handler is executed in this context. Jobs that it enqueues are its children."""
    return _current.get()


class running:  # noqa: N801 - used as a function; a generator would take five times as long
    """Make a run the current one within a block."""

    __slots__ = ("_run", "_token")

    def __init__(self, run: Run) -> None:
        self._run = run

    def __enter__(self) -> Run:
        self._token = _current.set(self._run)
        return self._run

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)


def end_if_forked(pid: int) -> None:
    """End a process that a handler forked and that returned from the handler: it must not report for the run."""
    if os.getpid() != pid:
        os._exit(0)


# The runs of a chunk, which share one call of the handler.


LOSSES_UNTIL_ALONE = 2  # from then on, a job runs without a chunk and in its own process, to protect other jobs


def is_gathered(claim: Claim) -> bool:
    """Return whether a job may be in a chunk with others."""
    return claim.task in registry.chunked and claim.losses < LOSSES_UNTIL_ALONE


class ChunkRun(Run):
    """The run of a chunk in an executor. It takes the slot, and its members have the leases and get the reports."""

    __slots__ = ("members", "report")

    def __init__(self, members: Sequence[Run], report: Callable[[Run, Performed], None] | None = None) -> None:
        """``report`` is called, from any thread, for a member that is done before the handler ends."""
        first = members[0]
        super().__init__(first.claim, granted_at=first.granted_at, alias=first.alias)
        self.members = list(members)
        self.report = report

    @property
    def parent_id(self) -> None:
        """Return None: the handler may enqueue a job for any member."""
        return

    def is_of_no_use(self) -> bool:
        """Return whether no member is left for which the handler may go on."""
        return all(one.reported or one.completed or one.asked_to_stop_at or one.cancelled for one in self.members)
