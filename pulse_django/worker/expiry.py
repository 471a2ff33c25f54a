"""Ends the jobs that have not started in time. A watchdog does it in its sweep, if it has found any."""

from __future__ import annotations

from pulse_django.models import Job
from pulse_django.protocol.expire import EXPIRE_LIMIT
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send_finished

from .guarded_connection import GuardedConnection

logger = SafeLogger("pulse_django.watchdog")

# Statements in one sweep: lost runs wait meanwhile. If jobs are left, the next sweep follows at once.
MOST_BATCHES = 10
MOST_EXPIRED = MOST_BATCHES * EXPIRE_LIMIT


def end_expired(database: GuardedConnection) -> int:
    """Cancel jobs that have not started in time, and return how many. If it is ``MOST_EXPIRED``, some may be left."""
    ended = 0
    for _ in range(MOST_BATCHES):
        endings = database.call(database.jobs.expire)
        ended += len(endings)
        for ending in endings:
            send_finished(Job, ending, using=database.alias)
        if len(endings) < EXPIRE_LIMIT:
            break
    if ended:
        logger.warning("%d jobs had not started in time; now CANCELLED", ended)
    return ended
