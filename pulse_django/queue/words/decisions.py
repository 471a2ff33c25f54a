"""Decide what happens to a job after an Outcome. ``decide()`` is a pure function.

The reap statement has the same rules as a CASE in SQL, and a table-driven test compares the two. If a cancellation was
requested while the run was ending, the UPDATE itself replaces a Retry or Postpone, because only the database knows of
the request in time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import assert_never

from pulse_django.exceptions import (
    CannotBeCalled,
    CannotWait,
    DecryptionFailed,
    NotInsideTransaction,
    UnstorableResult,
)

from .outcomes import (
    Cancelled,
    Discarded,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Stalled,
    Succeeded,
    TimedOut,
    Waited,
    WorkerLost,
)
from .retry_policies import Backoff, BackoffFunction, Random, RetryPolicy, delay_of, dotted_path


@dataclass(frozen=True, slots=True)
class Complete:
    result: str | None = field(default=None, repr=False)  # JSON


@dataclass(frozen=True, slots=True)
class Retry:
    delay: timedelta
    reason: str
    refund: bool = False  # the attempt does not count


@dataclass(frozen=True, slots=True)
class Postpone:
    """Run again after ``delay``. The attempt is refunded."""

    delay: timedelta
    reason: str = ""  # becomes the job's last error, if not empty


@dataclass(frozen=True, slots=True)
class Wait:
    """Run again when the jobs or the event that the job needs are there. The attempt is refunded."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    reason: str


@dataclass(frozen=True, slots=True)
class Cancel:
    reason: str = ""


Decision = Complete | Retry | Postpone | Wait | DeadLetter | Cancel

# Failures that another run would repeat: a result that cannot be stored, arguments that do not fit the function, a
# value that was tampered with, a handler that misuses its transaction or its worker.
_NEVER_RETRIED = frozenset(
    map(dotted_path, (UnstorableResult, CannotBeCalled, DecryptionFailed, NotInsideTransaction, CannotWait))
)
FLEET = Backoff()
ANY_EXCEPTION = RetryPolicy()
MAX_LOST_WORKERS = 5
# The prefix of the reason if the next run would have come later than ``give_up_after`` allows.
GAVE_UP = "give_up_after reached:"


def decide(
    outcome: Outcome,
    budget: Budget,
    *,
    policy: RetryPolicy = ANY_EXCEPTION,
    fleet: Backoff = FLEET,
    max_lost_workers: int = MAX_LOST_WORKERS,
    rand: Random = random.random,
) -> Decision:
    """Return the Decision for an Outcome.

    A job that has lost ``max_lost_workers`` workers is not run again, however many attempts remain: it may be the job
    that kills them. ``policy`` belongs to the task and applies only to exceptions of its handler. Timeouts, stalls and
    lost workers use the backoff of the settings, as when the watchdog ends the run.

    A retry that would come later than ``give_up_after`` allows is not scheduled. This function ignores the time since
    the claim. The database knows it, and checks again (``queue/ending.py``).
    """
    decision = _decided(outcome, budget, policy, fleet, max_lost_workers, rand)
    is_at_most_once = budget.max_lost_workers == 0
    if is_at_most_once and isinstance(decision, Retry | Postpone | Wait) and _has_begun(outcome):
        return DeadLetter(f"at_most_once: {getattr(decision, 'reason', '') or 'the handler asked for another run'}")
    if not isinstance(decision, Retry) or budget.retries_for is None:
        return decision
    if decision.delay.total_seconds() <= budget.retries_for:
        return decision
    return DeadLetter(f"{GAVE_UP} {decision.reason}")


def _has_begun(outcome: Outcome) -> bool:
    return not isinstance(outcome, Released) or outcome.has_begun


def _decided(
    outcome: Outcome, budget: Budget, policy: RetryPolicy, fleet: Backoff, max_lost_workers: int, rand: Random
) -> Decision:
    match outcome:
        case Succeeded():
            return Complete(outcome.result)
        case Failed():
            return _decide_failed(outcome, budget, policy, fleet, rand)
        case WorkerLost():
            return _decide_lost(outcome.reason, budget, fleet, max_lost_workers, rand)
        case TimedOut() | Stalled():
            return _retry_or_dead_letter(outcome.reason, budget, fleet, rand)
        case Snoozed() | Released():
            return Cancel() if budget.cancel_requested else Postpone(outcome.delay, outcome.reason)
        case Waited():
            return Cancel() if budget.cancel_requested else Wait()
        case Cancelled() | Discarded():
            return Cancel(outcome.reason)
    assert_never(outcome)


def _decide_failed(outcome: Failed, budget: Budget, policy: RetryPolicy, fleet: Backoff, rand: Random) -> Decision:
    error = outcome.error
    if budget.cancel_requested:
        return Cancel()
    if outcome.retry_in is not None:
        return _retry_or_dead_letter(error.last_error, budget, Backoff.fixed(outcome.retry_in), rand)
    if not _NEVER_RETRIED.isdisjoint(error.lineage) or not policy.retries(error.lineage):
        return DeadLetter(error.last_error)
    return _retry_or_dead_letter(error.last_error, budget, fleet if policy.backoff is None else policy.backoff, rand)


def _decide_lost(reason: str, budget: Budget, fleet: Backoff, max_lost_workers: int, rand: Random) -> Decision:
    """Decide for the keeper. The statement of watchdogs has the same rules (``queue/reap.py``): change both."""
    if budget.cancel_requested or (budget.left <= 0 and budget.count_lost_workers):
        return _retry_or_dead_letter(reason, budget, fleet, rand)
    lost = budget.losses + 1
    if lost >= (max_lost_workers if budget.max_lost_workers is None else budget.max_lost_workers):
        return DeadLetter(f"lost {lost} worker{'s' if lost > 1 else ''}: {reason}")
    counted = budget.counted if budget.count_lost_workers else lost
    return Retry(fleet.delay(counted, rand), reason, refund=not budget.count_lost_workers)


def _retry_or_dead_letter(reason: str, budget: Budget, backoff: BackoffFunction, rand: Random) -> Decision:
    if budget.cancel_requested:
        return Cancel()
    if budget.left <= 0:
        return DeadLetter(reason)
    return Retry(delay_of(backoff, budget.counted, rand), reason)


# The attempts that a job has used, and its limits.


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The attempts that a job has used, and its limits."""

    attempts: int
    refunds: int
    max_attempts: int
    losses: int = 0  # earlier runs whose worker was lost
    # After so many losses, the job becomes a dead letter. None: the setting. 0: a run that has begun is the last one.
    max_lost_workers: int | None = None
    count_lost_workers: bool = True  # a lost worker costs an attempt
    cancel_requested: bool = False
    retries_for: float | None = None  # a retry may start up to so many seconds after the claim; None: at any time

    @property
    def counted(self) -> int:
        """Return the attempts that count: not a snooze, a released run or those that an operator's retry refunds."""
        return self.attempts - self.refunds

    @property
    def left(self) -> int:
        return self.max_attempts - self.counted


def retry_seconds(give_up_after: timedelta | None, claimed_after: float) -> float | None:
    """Return for how many seconds after a claim a retry may start. ``claimed_after`` is the job's age at the claim."""
    return None if give_up_after is None else give_up_after.total_seconds() - claimed_after
