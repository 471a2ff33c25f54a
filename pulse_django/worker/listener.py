"""Listens for wake-ups: one connection for a worker, and a test that notifications arrive.

A child that is the only one of its worker listens itself. For several the keeper does, so that the server has one
connection to tell, and wakes the child that holds least.

Behind a pooler in transaction mode LISTEN succeeds and nothing ever arrives. So the listener sends itself a message by
the connection that everybody else uses, at the start and every now and then. What it does not hear costs a warning and
nothing else: the children poll.
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

TEST = "\x01"  # begins a message to oneself; no queue's name does
# Seconds. More often costs statements; more seldom leaves a dead connection undiscovered for longer.
BETWEEN_TESTS = 60.0
PATIENCE_FOR_TEST = 3.0
PATIENCE = 60.0  # of one turn; a test takes a few
BEFORE_TRYING_AGAIN = 600.0  # once it was found that nothing can be heard
TICK = 0.5
# Wake-ups in vain: so many at once, and so many a second. NOTIFY is open to every role of the database.
MOST_IN_VAIN = 5.0
# How many wake-ups in vain are allowed for each one that found work. While jobs arrive one by one, a wake-up is often
# in vain: the second look of the wake-up before has claimed its job.
FOR_EACH_FOUND = 4.0


class Listener:
    """``wake`` is called with the name of a queue that has work, and with what to tell the workers that follow.

    It returns whether there is anybody to look. If not, the workers that follow are told from here.
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
        """``told`` is called when it is known to hear, and when it is not any more.

        ``standing`` says which worker of the fleet this is. As long as it is unknown, every notification counts.
        ``watched`` gets the id of a job whose progress somebody looks at.
        ``of_shard`` is what the name of its loop ends with.
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
        """Note that a wake-up was not in vain."""
        self._budget.refund()

    def cut_if_hung(self, now: float) -> None:
        """Shut down a connection on which nothing has happened. Another thread calls it now and then."""
        if (connection := self._connection) is not None and now - self.database.turned_at > PATIENCE:
            self.database.turned_at = now
            with suppress(Exception):  # it may be closing in this very moment
                copy = socket.socket(fileno=os.dup(connection.fileno()))
                copy.shutdown(socket.SHUT_RDWR)
                copy.close()

    def run_once(self) -> float:
        """Listen for a tick. Return for how long to wait until the next."""
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
        self._connection = connection  # so that it can be cut
        connection.execute(f"LISTEN {CHANNEL}")
        self._tested_at = float("-inf")
        return connection

    def _hears_itself(self, connection: psycopg.Connection) -> bool:
        token = TEST + secrets.token_hex(8)
        self.database.call(self._say, token)
        self.database.hang_up()  # needed once a minute
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
        """Return what is said within so many seconds, as soon as something is."""
        pgconn, ready = connection.pgconn, select.poll()  # select() takes no descriptor above 1,023
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
                self._owed = True  # one for whatever else was said, once there is budget again
                self._owed_following = following or self._owed_following
                continue
            self._wake_or_pass_on(wake_up.queue or ANY_QUEUE, following)

    def _wake_or_pass_on(self, queue: str, following: str | None) -> None:
        if not self._wake(queue, following) and following is not None:
            # On another connection: psycopg would drop what this one hears during a statement.
            self.database.call(self._say, following)
            self.database.hang_up()

    def hang_up(self) -> None:
        self._note(False)
        if self._connection is not None:
            self._connection.close()
        self._connection = None


class WakeUpBudget:
    """So many wake-ups a second, not counting those that found work."""

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
