"""A connection to the database for one thread of a worker, with deadlines that the worker enforces.

PostgreSQL's ``statement_timeout`` and TCP's keepalives do not help if the peer acknowledges packets but does not
respond: a statement then waits for a quarter of an hour. Only another thread can shut the socket down. So each
connection stores since when it has been waiting, and the main thread of its process checks all of them.
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
from pulse_django.queue.database.database_errors import DatabaseFault, Patience, fault_of, is_refused, sqlstate_of
from pulse_django.queue.database.deployments import require_deployment
from pulse_django.queue.database.prepared_statements import PreparedStatements
from pulse_django.queue.database.transactions import RENEW_DEADLINE, limited, with_timeouts
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.run.notify import SOON
from pulse_django.safe_logging import SafeLogger

from .needed_threads import start_thread

T = TypeVar("T")
logger = SafeLogger("pulse_django.database")

# Seconds. Pulse's statements take milliseconds, so one that takes this long will not end.
LONGEST_WAIT = 10.0
SHORTEST_WAIT = 0.5
# Shares of that wait after which the server cancels the wait for a lock, or the statement. The connection can then be
# used again. After a disconnect, the statement would go on waiting on the server, next to its repetition.
LOCK_SHARE, STATEMENT_SHARE = 0.5, 0.8
# The share of that wait for the longest pause after a failure. If longer, leases expire although the database is back.
LONGEST_PAUSE_SHARE = 0.5
# The share of that wait for a cancellation to reach the server before the connection is closed; at most a second.
CANCEL_SHARE, LONGEST_CANCEL = 0.25, 1.0
CONNECT_WAIT = 2
# Seconds after which a verb that failed and was not called again is forgotten. If shorter, verbs that are rarely called
# are logged again. If longer, the next outage is not logged.
FORGOTTEN_AFTER = 300.0

# Options of libpq for TCP connections. Unix sockets ignore them.
_OPTIONS = {
    "connect_timeout": CONNECT_WAIT,
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# Options of the project that are not used here: a pool would return sessions of others, and server-side binding needs a
# round trip for each statement of a message.
_NOT_OURS = ("pool", "server_side_binding", "cursor_factory")


class GuardedConnection:
    """The connection of one thread. It runs verbs with ``call``. The main thread calls ``enforce`` regularly."""

    def __init__(self, alias: str, purpose: str, *, keeps_plans: bool = False) -> None:
        """``keeps_plans``: prepare statements that can be planned once."""
        self.alias = alias
        self.purpose = purpose
        self.patience = Patience()
        self.errors = 0  # database errors so far
        # By the monotonic clock: the last turn or failure of its loop, the last failure, and the last answer.
        self.turned_at, self.failed_at, self.answered_at = time.monotonic(), float("-inf"), float("-inf")
        # When verbs failed, and the error if the role lacked a right. Other verbs do not show that they work again.
        self._failing: dict[str, tuple[float, str]] = {}
        self._failed_verb: str | None = None  # of the last call; not noted before ``failed``: a caller may go on
        self.cut_off_since = 0.0  # since when it cannot connect, by the monotonic clock; 0: it can
        self._wrapper: BaseDatabaseWrapper | None = None
        self._until = float("inf")
        self._calls = 0  # it grows with each call, with its end and with each renewal of its deadline
        self._cut_call = -1
        self._looked_at = float("-inf")  # last check of the deployment, by the monotonic clock
        self._prepared_statements = PreparedStatements() if keeps_plans else None

    @property
    def jobs(self) -> Any:
        return Job.objects.db_manager(self.alias)

    @property
    def refused(self) -> str:
        """Return the error, if the role lacks a right. Empty: nothing is refused."""
        return next((error for _, error in reversed(self._failing.values()) if error), "")

    def call(self, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Run a verb on this thread's connection. If the connection is lost, the next call opens another one."""
        wrapper, name = self._prepared(), getattr(getattr(verb, "func", verb), "__qualname__", "")
        self._calls += 1
        self._failed_verb = None
        self.turned_at = time.monotonic()
        self._until = self.turned_at + longest_wait()
        try:
            if conf.current().deployment:
                self._require_deployment(wrapper)
            answer = verb(*args, **kwargs)
        except Error as error:
            if fault_of(error) is DatabaseFault.CUT_OFF or wrapper.connection is None or wrapper.connection.closed:
                self.hang_up()
            elif fault_of(error) in (DatabaseFault.CHANGING, DatabaseFault.MISTAKE):
                self._failed_verb = name
            raise
        finally:
            self._until = float("inf")
            self._calls += 1
        self.turned_at = self.answered_at = time.monotonic()
        self.cut_off_since = 0.0
        if self.patience.failures:
            recent = self.answered_at - FORGOTTEN_AFTER
            self._failing = {verb: at for verb, at in self._failing.items() if verb != name and at[0] > recent}
            if not self._failing and self.patience.succeeded():
                logger.info("%s: the database is responding again", self.purpose)
        return answer

    def _require_deployment(self, wrapper: BaseDatabaseWrapper) -> None:
        """Refuse a database that belongs to another deployment: it may have been replaced, or adopted."""
        since, interval = time.monotonic() - self._looked_at, conf.current().heartbeat_interval.total_seconds()
        if wrapper.connection is None or since >= interval:
            self._looked_at = float("-inf")
            require_deployment(self.alias)
            self._looked_at = time.monotonic()

    def _renew_deadline(self) -> None:
        """Give a verb that sends another statement as much time again."""
        self.turned_at = time.monotonic()
        self._until = self.turned_at + longest_wait()
        self._calls += 1  # so that a cut that has begun spares the next statement

    def connection_params(self) -> dict[str, Any]:
        """Return the parameters with which psycopg opens another such connection. It sends no query."""
        params: dict[str, Any] = self._prepared().get_connection_params()
        return {name: value for name, value in params.items() if name not in ("context", "cursor_factory")}

    def enforce(self, now: float) -> None:
        """Close a connection that has waited too long. Another thread calls it, and it does not block."""
        call, wrapper = self._calls, self._wrapper  # the call first: the deadline may be renewed meanwhile
        if now < self._until or call == self._cut_call or wrapper is None or wrapper.connection is None:
            return
        self._cut_call = call
        start_thread("cut-connection", partial(self._cut, wrapper, wrapper.connection, call))

    def _cut(self, wrapper: BaseDatabaseWrapper, raw: Any, call: int) -> None:
        """Cancel the statement on the server, and close its connection."""
        with suppress(Exception):  # it may be closing at this moment
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
        """Return whether that call still waits on that connection, because the cancellation has not ended it."""
        return self._calls == call and wrapper.connection is raw and not raw.closed

    def hang_up(self) -> None:
        """Close the connection of this thread, in any state."""
        if self._wrapper is None:
            return
        with suppress(Exception):
            self._wrapper.close()
        self._wrapper.connection = None
        self._wrapper = None
        with suppress(AttributeError):
            del connections[self.alias]

    def failed(self, error: BaseException) -> float:
        """Note a failure, log it once for each outage, and return the seconds to wait."""
        fault, self.failed_at = fault_of(error), time.monotonic()
        pause = min(self.patience.pause(fault), LONGEST_PAUSE_SHARE * longest_wait())
        # A process without file descriptors or settings cannot connect either.
        is_cut_off = fault is DatabaseFault.CUT_OFF or not sqlstate_of(error)
        self.cut_off_since = (self.cut_off_since or time.monotonic()) if is_cut_off else 0.0
        said = error_in_one_line(error)
        if fault is DatabaseFault.CUT_OFF:
            self._failing = {}  # any verb shows the end of an outage
        elif self._failed_verb is not None:  # another thread may be reading the old dictionary
            self._failing = {**self._failing, self._failed_verb: (self.failed_at, said if is_refused(error) else "")}
        if fault is DatabaseFault.MISTAKE:
            logger.error("%s: %s", self.purpose, said, exc_info=error)
            return pause
        self.errors += 1
        if self.patience.failures == 1:
            state = sqlstate_of(error)
            kind = "the database role lacks a right" if is_refused(error) else fault
            logger.warning("%s: %s%s: %s", self.purpose, kind, f" ({state})" if state else "", said)
        return pause

    def _prepared(self) -> BaseDatabaseWrapper:
        wrapper = connections[self.alias]
        if wrapper is not self._wrapper:
            if not wrapper.in_atomic_block:
                wrapper.close()  # a command may have opened it with the project's settings
            wrapper.settings_dict = _for_us(wrapper.settings_dict, self.purpose, self._prepared_statements)
            wrapper.settings_dict[RENEW_DEADLINE] = self._renew_deadline
            wrapper.execute_wrappers.append(limited)
            self._wrapper = wrapper
        return wrapper


def longest_wait() -> float:
    """Return a third of a lease: enough time to notice, to reconnect and to extend the lease."""
    third = conf.current().lease_ttl.total_seconds() / 3
    return min(LONGEST_WAIT, max(SHORTEST_WAIT, third))


def keep_calling(
    database: GuardedConnection, stopping: Event, step: Callable[[], float], last: Callable[[], None] | None = None
) -> None:
    """Call ``step`` until stopped, with the pauses that it returns, or longer ones after errors. Then call ``last``.

    No exception of a step ends the loop, not even SystemExit: a step may call code of the project.
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


# How often an idle worker polls the database: less often in a large fleet, because other workers poll, too.
#
# A thousand idle workers that each poll as often as a single one would send six hundred statements a second. It is
# enough if one of them finds a job whose notification was lost, or a sweep that is due.

# Workers of the same queues. A fleet of this size is not slowed. A larger fleet polls as often in total, until each
# worker pauses for so many times as long.
NOT_SLOWED = 40
POLLS_SLOWED_BY, SWEEPS_SLOWED_BY, PRESENCE_SLOWED_BY = 5.0, 2.0, 2.0
# Seconds. Jobs that are due after ``SOON`` are enqueued without a notification, so each worker polls more often than
# that.
LONGEST_POLL = 0.8 * SOON.total_seconds()
# Shares of a lease. A watchdog without a query for half a lease does not trust leases after one failure, and a worker
# without an answer for a lease is not ready.
LONGEST_SWEEP, LONGEST_PRESENCE = 0.4, 0.7


def slowed(seconds: float, fleet_size: int, at_most: float, longest: float) -> float:
    """Return the pause in a fleet of this size: the normal pause, up to ``at_most`` times as long.

    A longer pause than the normal one is at most ``longest``.
    """
    return max(seconds, min(longest, seconds * min(at_most, fleet_size / NOT_SLOWED)))
