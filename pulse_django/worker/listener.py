"""Listen for wake-ups on one connection for each worker, and test that notifications arrive.

A single child of a worker listens itself. With several children, the keeper listens, so that the server notifies only
one connection. It wakes the child with the fewest jobs.

Behind a pooler in transaction mode, LISTEN succeeds, but nothing arrives. So the listener regularly sends itself a
message on a normal connection. If the message does not arrive, the listener logs a warning, and the children poll.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import time
from collections.abc import Callable, Collection
from contextlib import suppress

import psycopg
from django.db import connections

from pulse_django import conf
from pulse_django.queue.database.workers import Standing
from pulse_django.run.notify import ANY_QUEUE, CHANNEL, NOTIFY, WakeUp, watched_job
from pulse_django.safe_logging import SafeLogger

from .guarded_connection import GuardedConnection

logger = SafeLogger("pulse_django.wakeup")

TEST = "\x01"  # prefix of a message to itself; names of queues cannot have it
# Seconds. If shorter, tests cost more statements. If longer, a dead connection is noticed later.
BETWEEN_TESTS = 60.0
PATIENCE_FOR_TEST = 3.0
PATIENCE = 60.0  # seconds for one turn; a test takes a few
BEFORE_TRYING_AGAIN = 600.0  # seconds, after a failed test
TICK = 0.5
# The limit of wake-ups that find no work: so many at once, and so many a second. Every role of the database may NOTIFY.
MOST_IN_VAIN = 5.0
# How many wake-ups without work are allowed for each one with work. If jobs arrive one by one, a wake-up often finds no
# work, because the second look of the previous wake-up has claimed the job.
FOR_EACH_FOUND = 4.0


class Listener:
    """The listener. ``wake`` is called with the name of a queue with work, and the notification for the next workers.

    It returns whether there is a child to look for work. If not, the listener notifies the next workers.
    """

    def __init__(
        self,
        alias: str,
        queues: Collection[str],
        wake: Callable[[str, str | None], bool],
        *,
        tick: float = TICK,
        hears_changed: Callable[[bool], None] = lambda hears: None,
        standing: Callable[[], Standing | tuple[int, int] | None] = lambda: None,
        watched: Callable[[int], None] = lambda job_id: None,
        of_shard: str = "",
    ) -> None:
        """``hears_changed`` is called when notifications are known to arrive, and when they do not any more.

        ``standing`` returns the position of this worker in the fleet. While it is unknown, every notification counts.
        ``watched`` gets the id of a job whose progress a user is watching. ``of_shard`` is the suffix of its loop's
        name.
        """
        self.database = GuardedConnection(alias, f"wake-up{of_shard}")
        self.hears = False
        self._hears_changed, self._standing, self._watched = hears_changed, standing, watched
        self._alias, self._queues, self._wake, self._tick = alias, frozenset(queues), wake, tick
        self._connection: psycopg.Connection | None = None
        self._budget = WakeUpBudget()
        self._tested_at = float("-inf")
        self._owed = False
        self._owed_following: str | None = None

    def found_work(self) -> None:
        """Note that a wake-up found work."""
        self._budget.refund()

    def cut_if_hung(self, now: float) -> None:
        """Shut down a connection without activity. Another thread calls it regularly."""
        if (connection := self._connection) is not None and now - self.database.turned_at > PATIENCE:
            self.database.turned_at = now
            with suppress(Exception):  # it may be closing at this moment
                copy = socket.socket(fileno=os.dup(connection.fileno()))
                copy.shutdown(socket.SHUT_RDWR)
                copy.close()

    def run_once(self) -> float:
        """Listen for a tick. Return the pause before the next one."""
        self.database.turned_at = time.monotonic()
        try:
            if self._connection is None or self._connection.closed:
                self._connection = self._listen()
            if time.monotonic() - self._tested_at > BETWEEN_TESTS and not self._hears_itself(self._connection):
                self.hang_up()
                return BEFORE_TRYING_AGAIN
            patience = min(self._tick, 1 / MOST_IN_VAIN) if self._owed else self._tick
            self._pass_on(self._receive(self._connection, patience))
            if self._owed and self._budget.spend():
                self._owed = False
                self._wake_or_pass_on(ANY_QUEUE, self._owed_following)
                self._owed_following = None
        except Exception:
            self.hang_up()
            raise
        return 0.0

    def _listen(self) -> psycopg.Connection:
        self.hang_up()
        if dsn := conf.current().listen_dsn:
            connection = psycopg.connect(dsn, autocommit=True, connect_timeout=3)
        else:
            params = self.database.connection_params()
            connection = psycopg.connect(**params | {"autocommit": True, "prepare_threshold": None})
        self._connection = connection  # so that it can be shut down
        connection.execute(f"LISTEN {CHANNEL}")
        self._tested_at = float("-inf")
        return connection

    def _hears_itself(self, connection: psycopg.Connection) -> bool:
        token = TEST + secrets.token_hex(8)
        self.database.call(self._say, token)
        self.database.hang_up()  # it is used once a minute
        until = time.monotonic() + PATIENCE_FOR_TEST
        heard: list[str] = []
        while token not in heard and time.monotonic() < until:
            heard += self._receive(connection, self._tick)
        self._pass_on([name for name in heard if not name.startswith(TEST)])
        self._tested_at = time.monotonic()
        if token not in heard:
            logger.warning(
                "LISTEN succeeded, but no notification arrived: is there a transaction pooler in between? Workers "
                "poll every %s s. "
                'Set PULSE["LISTEN_DSN"] to a connection that bypasses the pooler.',
                conf.current().poll_interval.total_seconds(),
            )
        elif not self.hears:
            logger.info("Listening for wake-ups")
        self._note(token in heard)
        return self.hears

    def _note(self, hears: bool) -> None:
        if hears != self.hears:
            self.hears = hears
            self._hears_changed(hears)

    def _say(self, text: str) -> None:
        with connections[self._alias].cursor() as cursor:
            cursor.execute(NOTIFY, [CHANNEL, text])

    def _receive(self, connection: psycopg.Connection, patience: float) -> list[str]:
        """Return the notifications of at most so many seconds, as soon as there is one."""
        pgconn, ready = connection.pgconn, select.poll()  # select() has no descriptors above 1,023
        ready.register(connection.fileno(), select.POLLIN)
        if not ready.poll(patience * 1000):
            return []
        pgconn.consume_input()
        heard = []
        while (notice := pgconn.notifies()) is not None:
            heard.append(notice.extra.decode(errors="replace"))
        return heard

    def _pass_on(self, names: Collection[str]) -> None:
        rank, total = (self._standing() or (0, 1))[:2]
        for said in dict.fromkeys(names):
            if (job_id := watched_job(said)) is not None:
                self._watched(job_id)
                continue
            wake_up = WakeUp.read(said)
            if said.startswith(TEST) or (self._queues and wake_up.queue and wake_up.queue not in self._queues):
                continue
            if (place := wake_up.place_of(rank, total)) is None:
                continue
            after = wake_up.after(place, total)
            following = None if after is None else after.payload
            if not self._budget.spend():
                self._owed = True  # one wake-up for all others, when there is budget again
                self._owed_following = following or self._owed_following
                continue
            self._wake_or_pass_on(wake_up.queue or ANY_QUEUE, following)

    def _wake_or_pass_on(self, queue: str, following: str | None) -> None:
        if not self._wake(queue, following) and following is not None:
            # On another connection: psycopg would drop notifications that arrive here during a statement.
            self.database.call(self._say, following)
            self.database.hang_up()

    def hang_up(self) -> None:
        self._note(False)
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class WakeUpBudget:
    """A budget of wake-ups for each second. Wake-ups that found work do not count."""

    def __init__(self) -> None:
        self._left, self._at = MOST_IN_VAIN, time.monotonic()

    def spend(self) -> bool:
        now = time.monotonic()
        self._left = min(MOST_IN_VAIN, self._left + (now - self._at) * MOST_IN_VAIN)
        self._at = now
        if self._left < 1.0:
            return False
        self._left -= 1.0
        return True

    def refund(self) -> None:
        self._left = min(MOST_IN_VAIN, self._left + FOR_EACH_FOUND)
