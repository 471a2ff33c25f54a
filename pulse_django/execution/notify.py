"""Wakes idle workers with a NOTIFY after a commit that enqueued jobs. It is only a hint: workers poll as well.

A NOTIFY inside the enqueuing transaction would serialise the commits of all enqueuers (275 a second instead of 2,241,
measured with eight clients and commits of 3 ms). So it is sent afterwards, in a transaction of its own that no one
waits for to reach the disk, and at most once in ten milliseconds for a queue: who listens looks a second time after
that, so that what was committed meanwhile in silence is seen too.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial

from django.db import Error, connections, transaction

from pulse_django import conf
from pulse_django.words.payloads import error_in_one_line

logger = logging.getLogger(__name__)

CHANNEL = "pulse_django"
ANY_QUEUE = ""
# Seconds. Shorter notifies more often than workers can make use of; longer delays the second look.
SILENCE = 0.004
# A worker that hears wake-ups polls every few seconds.
SOON = timedelta(seconds=30)

_NOTIFY = "SELECT pg_catalog.pg_notify(%s, %s)"
_ALONE = f"BEGIN; SET LOCAL synchronous_commit = off; {_NOTIFY}; COMMIT"

_notified_at: dict[tuple[str, str], float] = {}


def is_due_soon(run_after: datetime | timedelta | None) -> bool:
    """Whether workers should find out now when a job is due: their next poll may come too late."""
    return not isinstance(run_after, timedelta) or run_after <= SOON


def wake_workers(alias: str, queues: Iterable[str]) -> None:
    """Let idle workers look at these queues once the caller's transaction has committed."""
    connection = connections[alias]
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # code that commits by hand does not say when; workers poll
    if conf.current().notify:
        transaction.on_commit(partial(_notify, alias, frozenset(queues)), using=alias, robust=True)


def _notify(alias: str, queues: frozenset[str]) -> None:
    connection = connections[alias]
    if not connection.get_autocommit():
        return  # the statement would begin a transaction that its owner knows nothing of
    statement = _NOTIFY if connection.settings_dict["OPTIONS"].get("server_side_binding") else _ALONE
    for queue in queues:
        now = time.monotonic()
        if now - _notified_at.get((alias, queue), float("-inf")) < SILENCE:
            continue
        _notified_at[alias, queue] = now
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, [CHANNEL, queue])
        except Error as error:  # the jobs are committed: their enqueuer must not see an error
            del _notified_at[alias, queue]
            logger.info("Notifying the workers failed: %s", error_in_one_line(error))
            if connection.connection is not None and not connection.connection.closed:
                connection.connection.rollback()
            return
