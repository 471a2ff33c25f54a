"""Wake idle workers with a NOTIFY after a commit that enqueued jobs. It is only a hint: workers poll as well.

A NOTIFY inside the enqueuing transaction would serialise the commits of all enqueuers (275 a second instead of 2,241,
measured with eight clients and commits of 3 ms). So it is sent after the commit, in its own transaction with
asynchronous commit, and at most once in four milliseconds for each queue. A notified worker looks for work again after
that time, so it also finds jobs that were committed without a notification.

Every worker receives a notification, but only two act on it. If all did, each would send a claim for one job. The
number in a notification gives each worker a place. The workers at the first two places look for work. A worker that has
no free slots, or finds more jobs than it has slots, notifies its two successors in a binary tree. A fleet of a thousand
is awake after nine steps.
"""

from __future__ import annotations

import logging
import random
import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from django.db import Error, connections, transaction

from pulse_django import conf
from pulse_django.queue.words.payloads import error_in_one_line

logger = logging.getLogger(__name__)

CHANNEL = "pulse_django"
ANY_QUEUE = ""
# Seconds. If shorter, notifications come more often than workers can use them. If longer, the second look is delayed.
SILENCE = 0.004
# The prefix of a notification about a watched job instead of a queue. Names of queues cannot contain it.
WATCHED = "\x03"
BETWEEN_WATCHED = 5.0  # seconds between two for the same job; each makes the worker save progress for longer
MOST_REMEMBERED = 1_000
# A worker that receives notifications polls only every few seconds.
SOON = timedelta(seconds=30)

NUMBERS = 1_000_003
_NUMBERED = re.compile("(.*)\x02([0-9]{1,9})[.]([0-9]{1,9})", re.DOTALL)
_WATCHED = re.compile(f"{WATCHED}([0-9]{{1,18}})")

NOTIFY = "SELECT pg_catalog.pg_notify(%s, %s)"
_ALONE = f"BEGIN; SET LOCAL synchronous_commit = off; {NOTIFY}; COMMIT"

_notified_at: dict[tuple[str, str], float] = {}


class WakeUp(NamedTuple):
    """The payload of a notification: the queue, and the workers that have to look for work."""

    queue: str
    number: int | None = None  # None: all workers
    first: int = 0  # of the two places to wake

    @classmethod
    def new(cls, queue: str) -> WakeUp:
        """Return a notification for two workers, or for all of them if any queue may have work."""
        return cls(queue, None if queue == ANY_QUEUE else random.randrange(NUMBERS))  # noqa: S311 - no secret

    @classmethod
    def read(cls, payload: str) -> WakeUp:
        """Parse any payload: every client may send NOTIFY. A plain queue name wakes all workers."""
        found = _NUMBERED.fullmatch(payload)
        return cls(found[1], int(found[2]), int(found[3])) if found else cls(payload)

    @property
    def payload(self) -> str:
        return self.queue if self.number is None else f"{self.queue}\x02{self.number}.{self.first}"

    def place_of(self, rank: int, total: int) -> int | None:
        """Return the place of a worker with this rank, if it is woken. Otherwise return None."""
        if self.number is None:
            return 0
        place = (rank - self.number) % total
        return place if self.first <= place <= self.first + 1 else None

    def after(self, place: int, total: int) -> WakeUp | None:
        """Return the notification for the successors of this place. None: there are none, or all are woken already."""
        first = 2 * place + 2
        return None if self.number is None or first >= total else self._replace(first=first)


def is_due_soon(run_after: datetime | timedelta | None) -> bool:
    """Return whether to notify workers of a delayed job now, because their next poll may come too late."""
    return not isinstance(run_after, timedelta) or run_after <= SOON


def wake_workers(alias: str, queues: Iterable[str]) -> None:
    """Wake idle workers for these queues after the caller's transaction has committed."""
    connection = connections[alias]
    if not connection.in_atomic_block and not connection.get_autocommit():
        return  # autocommit is off, so the time of the commit is not known; workers poll
    if conf.current().notify:
        transaction.on_commit(partial(_notify, alias, frozenset(queues)), using=alias, robust=True)


def watch_progress(alias: str, job_id: int) -> None:
    """Ask the worker of a job to save its progress each second for a while, because a user is watching it."""
    if len(_notified_at) > MOST_REMEMBERED:
        _notified_at.clear()
    wake_workers(alias, [f"{WATCHED}{job_id}"])


def watched_job(payload: str) -> int | None:
    """Return the id of the watched job in a payload, or None."""
    found = _WATCHED.fullmatch(payload)
    return None if found is None else int(found[1])


def _notify(alias: str, queues: frozenset[str]) -> None:
    connection = connections[alias]
    if not connection.get_autocommit():
        return  # the statement would begin a transaction unexpectedly
    statement = NOTIFY if connection.settings_dict["OPTIONS"].get("server_side_binding") else _ALONE
    for queue in queues:
        now = time.monotonic()
        is_watched = queue.startswith(WATCHED)
        silence = BETWEEN_WATCHED if is_watched else SILENCE
        if now - _notified_at.get((alias, queue), float("-inf")) < silence:
            continue
        _notified_at[alias, queue] = now
        try:
            with connection.cursor() as cursor:
                cursor.execute(statement, [CHANNEL, queue if is_watched else WakeUp.new(queue).payload])
        except Error as error:  # the jobs are committed, so the caller must not get an error
            _notified_at.pop((alias, queue), None)
            logger.info("Notifying the workers failed: %s", error_in_one_line(error))
            if connection.connection is not None and not connection.connection.closed:
                connection.connection.rollback()
            return


def pass_on(alias: str, payload: str) -> None:
    """Notify the successors of this worker."""
    with connections[alias].cursor() as cursor:
        cursor.execute(_ALONE, [CHANNEL, payload])
