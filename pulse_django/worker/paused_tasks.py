"""Sets the jobs of paused tasks aside, and brings them back. A watchdog does it in its sweep, if there are any."""

from __future__ import annotations

from functools import partial

from pulse_django.execution.notify import wake_workers
from pulse_django.protocol.set_aside import MOST_BATCHES, SET_ASIDE_LIMIT, in_batches
from pulse_django.safe_logging import SafeLogger

from .guarded_connection import GuardedConnection

logger = SafeLogger("pulse_django.watchdog")


def see_to_paused_tasks(database: GuardedConnection) -> bool:
    """Return whether some may be left."""
    aside, brought_back = (
        [queue for queues in in_batches(partial(database.call, verb)) for queue in queues]
        for verb in (database.jobs.set_aside, database.jobs.bring_back)
    )
    if brought_back:
        database.call(wake_workers, database.alias, set(brought_back))
    if aside or brought_back:
        logger.info("Paused tasks: %d jobs were set aside, %d brought back", len(aside), len(brought_back))
    return max(len(aside), len(brought_back)) >= MOST_BATCHES * SET_ASIDE_LIMIT
