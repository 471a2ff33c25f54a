"""Resolve the ends of jobs: free the jobs that waited for them, finish batches, and empty cancelled batches."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import Any

from django.db import DatabaseError, transaction

from pulse_django.models import Job
from pulse_django.queue.capability import WorkerDatabase
from pulse_django.queue.database.database_errors import is_refused
from pulse_django.run.notify import wake_workers
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send_finished

from .batch_verbs import CANCEL_LIMIT, HOLD_LIMIT, members_to_cancel

logger = SafeLogger("pulse_django.workflows")

# Rounds in one call. The next call or a watchdog does the rest.
MOST_ROUNDS = 20


class Remaining(IntEnum):
    """The changes that a call has left."""

    NOTHING = 0
    LOCKED = 1  # another transaction has locked them: try again soon
    MORE = 2


def _directly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def resolve(
    alias: str,
    *,
    call: Callable[..., Any] = _directly,
    with_timeouts: bool = False,
    rounds: int = MOST_ROUNDS,
    freed: Callable[[], object] = lambda: None,
) -> Remaining:
    """Resolve committed changes. Return what is left.

    ``call`` runs each step that uses the database. ``freed`` is called when waiting jobs may run.
    """
    jobs, after, left = Job.objects.db_manager(alias), 0, Remaining.NOTHING
    for _ in range(rounds):
        resolved = call(jobs.resolve, with_timeouts=with_timeouts, after=after)
        if resolved.queues:
            freed()
            call(wake_workers, alias, resolved.queues)
        for ending in resolved.endings:
            send_finished(Job, ending, using=alias)
        for batch_id in resolved.cancelling:
            call(cancel_members, alias, batch_id)
        if resolved.is_locked:
            left = Remaining.LOCKED
        if not resolved.has_more:
            return left
        with_timeouts, after = False, max(after, resolved.last)
    return Remaining.MORE


def free(database: WorkerDatabase, freed: Callable[[], object]) -> bool:
    """Free the jobs that waited for ended runs of a worker. Return whether some are left."""
    return bool(resolve(database.alias, call=database.call, freed=freed))


def hold_paused(alias: str, *, call: Callable[..., Any] = _directly, rounds: int = MOST_ROUNDS) -> bool:
    """Let the jobs of paused batches wait. Return whether some are left."""
    jobs = Job.objects.db_manager(alias)
    return all(len(call(jobs.hold)) >= HOLD_LIMIT for _ in range(rounds))


def cancel_members(alias: str, batch_id: int) -> int:
    """Cancel the next members of a cancelled batch, and return how many."""
    jobs = Job.objects.db_manager(alias)
    ids, reason = members_to_cancel(jobs, batch_id, limit=CANCEL_LIMIT)
    if ids:
        jobs.request_cancel(ids, reason=reason)
    return len(ids)


def resolve_when_committed(alias: str) -> None:
    """Resolve a change of the caller after the caller's commit."""
    transaction.on_commit(partial(_resolve_for_caller, alias), using=alias, robust=True)


def _resolve_for_caller(alias: str) -> None:
    """Resolve changes. The caller has committed and must not fail, so a watchdog does the rest after an error.

    A role that only enqueues may not free jobs, and leaves this to workers and watchdogs.
    """
    try:
        resolve(alias)
    except DatabaseError as error:
        if not is_refused(error):
            raise
