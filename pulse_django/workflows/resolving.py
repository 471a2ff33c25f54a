"""What follows from ended jobs: those that they held are freed, batches are finished, and cancelled batches emptied."""

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

# Rounds in one go. What is left is found by the next call, or by a watchdog.
MOST_ROUNDS = 20


class Remaining(IntEnum):
    """What a call has left."""

    NOTHING = 0
    LOCKED = 1  # somebody else's transaction has locked it: look again a little later
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
    """Do what follows from changes that were committed. Return what is left.

    ``call`` runs each step that uses the database. ``freed`` is called when jobs may run that waited.
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
    """Free what the ends of these runs decide, for a worker. Return whether some is left."""
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
    """Do what follows from a change of the caller's, after the caller's commit."""
    transaction.on_commit(partial(_resolve_for_caller, alias), using=alias, robust=True)


def _resolve_for_caller(alias: str) -> None:
    """The caller's work is done, and must not fail because of ours. A watchdog sees to what is left.

    A role that only enqueues may not free jobs, and leaves it to workers and watchdogs.
    """
    try:
        resolve(alias)
    except DatabaseError as error:
        if not is_refused(error):
            raise
