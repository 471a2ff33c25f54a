"""A connection to the database for one thread of a worker, with deadlines that the worker enforces.

PostgreSQL's ``statement_timeout`` and TCP's keepalives do not help against a peer that acknowledges and says nothing:
a statement then waits for a quarter of an hour. Only another thread can shut the socket down. So each connection knows
since when it has been waiting, and the main thread of its process checks all of them.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from threading import Event
from typing import Any, TypeVar

from django.db import Error, connections
from django.db.backends.base.base import BaseDatabaseWrapper

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.database.database_errors import DatabaseFault, Patience, fault_of, sqlstate_of
from pulse_django.queue.database.deployments import require_deployment
from pulse_django.queue.database.prepared_statements import PreparedStatements
from pulse_django.queue.database.transactions import limited, with_timeouts
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.run.notify import SOON
from pulse_django.safe_logging import SafeLogger

from .needed_threads import start_thread

T = TypeVar("T")
logger = SafeLogger("pulse_django.database")

# Seconds. A statement of ours takes milliseconds; one that takes this long will not come back.
LONGEST_WAIT = 10.0
SHORTEST_WAIT = 0.5
# Shares of that wait after which the server gives up: on a lock, and on a statement. The connection can then be used
# again. Hanging up would leave the statement waiting on the server, beside the one that follows it.
LOCK_SHARE, STATEMENT_SHARE = 0.5, 0.8
# Of that wait again: the longest pause after a failure. Longer, and leases run out though the database is back.
LONGEST_PAUSE_SHARE = 0.5
# Of that wait once more: for a cancellation to reach the server, before its connection is cut; a second at most.
CANCEL_SHARE, LONGEST_CANCEL = 0.25, 1.0
CONNECT_WAIT = 2

# libpq's, for connections over TCP; over Unix sockets they are ignored.
_OPTIONS = {
    "connect_timeout": CONNECT_WAIT,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# What a project may have set for its own connections and is none of ours: a pool would hand out strangers' sessions,
# and server-side binding takes a round trip for each statement of a message.
_NOT_OURS = ("pool", "server_side_binding", "cursor_factory")


class GuardedConnection:
    """The connection of one thread. Verbs go through ``call``; the main thread calls ``enforce`` at intervals."""

    def __init__(self, alias: str, purpose: str, *, keeps_plans: bool = False) -> None:
        """``keeps_plans``: statements that can be planned once are prepared."""
        self.alias = alias
        self.purpose = purpose
        self.patience = Patience()
        self.errors = 0  # failures of the database so far
        # By the monotonic clock: when its loop last did something or failed, and when the database last answered.
        self.turned_at, self.failed_at, self.answered_at = time.monotonic(), float("-inf"), float("-inf")
        self.cut_off_since = 0.0  # when the connection could not be opened any more, by the monotonic clock; 0: it can
        self._wrapper: BaseDatabaseWrapper | None = None
        self._until = float("inf")
        self._calls = 0
        self._looked_at = float("-inf")  # by the monotonic clock: at which deployment the database belongs to
        self._prepared_statements = PreparedStatements() if keeps_plans else None

    @property
    def jobs(self) -> Any:
        return Job.objects.db_manager(self.alias)

    def call(self, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a verb on this thread's connection. If it is cut off, the next call opens another."""
        wrapper = self._prepared()
        self._calls += 1
        self.turned_at = time.monotonic()
        self._until = self.turned_at + longest_wait()
        try:
            if conf.current().deployment:
                self._require_deployment(wrapper)
            answer = verb(*args, **kwargs)
        except Error as error:
            if fault_of(error) is DatabaseFault.CUT_OFF or wrapper.connection is None or wrapper.connection.closed:
                self.hang_up()
            raise
        finally:
            self._until = float("inf")
            self._calls += 1
        self.turned_at = self.answered_at = time.monotonic()
        self.cut_off_since = 0.0
        if self.patience.failures and self.patience.succeeded():
            logger.info("%s: the database is responding again", self.purpose)
        return answer

    def _require_deployment(self, wrapper: BaseDatabaseWrapper) -> None:
        """Do nothing in a database that belongs to another deployment: it may have been replaced, or adopted."""
        since, interval = time.monotonic() - self._looked_at, conf.current().heartbeat_interval.total_seconds()
        if wrapper.connection is None or since >= interval:
            self._looked_at = float("-inf")
            require_deployment(self.alias)
            self._looked_at = time.monotonic()

    def connection_params(self) -> dict[str, Any]:
        """Return what psycopg needs to open another connection as ours are. It asks the database nothing."""
        params: dict[str, Any] = self._prepared().get_connection_params()
        return {name: value for name, value in params.items() if name not in ("context", "cursor_factory")}

    def enforce(self, now: float) -> None:
        """Cut a connection that has waited for too long. Another thread calls it, and does not wait for it."""
        wrapper = self._wrapper
        if now < self._until or wrapper is None or wrapper.connection is None:
            return
        self._until = float("inf")
        start_thread("cut-connection", partial(self._cut, wrapper, wrapper.connection, self._calls))

    def _cut(self, wrapper: BaseDatabaseWrapper, raw: Any, call: int) -> None:
        """Cancel the statement on the server, where it would go on waiting, and close the connection under it."""
        with suppress(Exception):  # it may be closing in this very moment
            copy = socket.socket(fileno=os.dup(raw.fileno()))
            try:
                if not self._is_waiting(wrapper, raw, call):
                    return
                logger.warning("%s: no response for %.1f s; closing the connection", self.purpose, longest_wait())
                with suppress(Exception):
                    if hasattr(raw, "cancel_safe"):  # since psycopg 3.2
                        raw.cancel_safe(timeout=min(LONGEST_CANCEL, CANCEL_SHARE * longest_wait()))
                    else:
                        raw.cancel()
                if self._is_waiting(wrapper, raw, call):
                    copy.shutdown(socket.SHUT_RDWR)
            finally:
                copy.close()

    def _is_waiting(self, wrapper: BaseDatabaseWrapper, raw: Any, call: int) -> bool:
        """Whether that call still waits on that connection: a cancellation that came through has ended it."""
        return self._calls == call and wrapper.connection is raw and not raw.closed

    def hang_up(self) -> None:
        """Close the connection of this thread, whatever state it is in."""
        if self._wrapper is None:
            return
        with suppress(Exception):
            self._wrapper.close()
        self._wrapper.connection = None
        self._wrapper = None
        with suppress(AttributeError):
            del connections[self.alias]

    def failed(self, error: BaseException) -> float:
        """Note a failure, log it once in each outage, and return how long to wait."""
        fault, self.failed_at = fault_of(error), time.monotonic()
        pause = min(self.patience.pause(fault), LONGEST_PAUSE_SHARE * longest_wait())
        # A process without descriptors or settings is cut off as well.
        is_cut_off = fault is DatabaseFault.CUT_OFF or not sqlstate_of(error)
        self.cut_off_since = (self.cut_off_since or time.monotonic()) if is_cut_off else 0.0
        said = error_in_one_line(error)
        if fault is DatabaseFault.MISTAKE:
            logger.error("%s: %s", self.purpose, said, exc_info=error)
            return pause
        self.errors += 1
        if self.patience.failures == 1:
            state = sqlstate_of(error)
            logger.warning("%s: %s%s: %s", self.purpose, fault, f" ({state})" if state else "", said)
        return pause

    def _prepared(self) -> BaseDatabaseWrapper:
        wrapper = connections[self.alias]
        if wrapper is not self._wrapper:
            if not wrapper.in_atomic_block:
                wrapper.close()  # a command may have opened it already, with the project's settings
            wrapper.settings_dict = _for_us(wrapper.settings_dict, self.purpose, self._prepared_statements)
            wrapper.execute_wrappers.append(limited)
            self._wrapper = wrapper
        return wrapper


def longest_wait() -> float:
    """A third of a lease: time enough to notice, to reconnect and to extend it all the same."""
    third = conf.current().lease_ttl.total_seconds() / 3
    return min(LONGEST_WAIT, max(SHORTEST_WAIT, third))


def keep_calling(
    database: GuardedConnection, stopping: Event, step: Callable[[], float], last: Callable[[], None] | None = None
) -> None:
    """Call ``step`` until stopped, with the pauses that it returns or that its failures need; then ``last``, once.

    Nothing that a step raises ends the loop, nor SystemExit: a step may call code of the project's.
    """
    try:
        while not stopping.is_set():
            try:
                pause = step()
            except BaseException as error:
                pause = database.failed(error)
            if pause > 0:
                stopping.wait(pause)
        if last is not None:
            with suppress(Exception):
                last()
    finally:
        database.hang_up()


def _for_us(settings: dict[str, Any], purpose: str, prepared: PreparedStatements | None) -> dict[str, Any]:
    theirs = {name: value for name, value in settings.get("OPTIONS", {}).items() if name not in _NOT_OURS}
    options = _OPTIONS | theirs | {"application_name": f"pulse {purpose}"[:63]}
    ours = {"OPTIONS": options, "CONN_MAX_AGE": None, "CONN_HEALTH_CHECKS": False, "ATOMIC_REQUESTS": False}
    wait = longest_wait()
    lock, statement = LOCK_SHARE * wait, STATEMENT_SHARE * wait
    return with_timeouts(settings | ours, lock=lock, statement=statement, prepared=prepared)


# How often an idle worker asks the database: less often the more workers of its fleet could ask instead.
#
# A thousand idle workers that each ask as often as a single one would send six hundred statements a second. What they
# ask for is found by the first of them: a job whose notification was lost, a sweep that is due.


# Workers of the same queues. A fleet of this size is not slowed. A larger one asks as often as one of this size, until
# each worker waits for so many times as long as alone.
NOT_SLOWED = 40
POLLS_SLOWED_BY, SWEEPS_SLOWED_BY, PRESENCE_SLOWED_BY = 5.0, 2.0, 2.0
# Seconds. Jobs that are due after ``SOON`` are enqueued without a notification, so each worker polls more often.
LONGEST_POLL = 0.8 * SOON.total_seconds()
# Shares of a lease. A watchdog that did not ask for half a lease does not trust leases when it fails once, and a worker
# that has not had an answer for a lease is not ready.
LONGEST_SWEEP, LONGEST_PRESENCE = 0.4, 0.7


def slowed(seconds: float, fleet_size: int, at_most: float, longest: float) -> float:
    """Return for how long to wait in a fleet of this size: as long as alone, or ``at_most`` times as long.

    What is slowed never waits for longer than ``longest``.
    """
    return max(seconds, min(longest, seconds * min(at_most, fleet_size / NOT_SLOWED)))
