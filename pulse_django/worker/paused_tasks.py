"""Sets the jobs of paused tasks aside, and brings them back. A watchdog does it in its sweep, if there are any."""

from __future__ import annotations

from collections.abc import Callable

from pulse_django.execution.notify import wake_workers
from pulse_django.protocol.set_aside import SET_ASIDE_LIMIT
from pulse_django.safe_logging import SafeLogger

from .guarded_connection import GuardedConnection

logger = SafeLogger("pulse_django.watchdog")

# Statements of each kind in one sweep: lost runs wait meanwhile. If jobs are left, the next sweep follows at once.
MOST_BATCHES = 10


def see_to_paused_tasks(database: GuardedConnection) -> bool:
    """Return whether some may be left."""
    aside, brought_back = _all_of(database, database.jobs.set_aside), _all_of(database, database.jobs.bring_back)
    if brought_back:
        database.call(wake_workers, database.alias, set(brought_back))
    if aside or brought_back:
        logger.info("Paused tasks: %d jobs were set aside, %d brought back", len(aside), len(brought_back))
    return max(len(aside), len(brought_back)) >= MOST_BATCHES * SET_ASIDE_LIMIT


def _all_of(database: GuardedConnection, verb: Callable[[], list[str]]) -> list[str]:
    queues: list[str] = []
    for _ in range(MOST_BATCHES):
        queues += (some := database.call(verb))
        if len(some) < SET_ASIDE_LIMIT:
            break
    return queues
