"""Prepared statements: the server plans them once for each connection of a child, and not for each call.

Planning a claim takes the server about as long as claiming ten jobs. A kept plan is made for any values, and must be
good for an empty table and for a full one. So a statement is prepared only if it finds rows one by one, by LATERAL or
by an array of ids, and the session plans with indexes only. A join that was planned while there were no jobs would
later read all of them.

Settings and prepared statements belong to a session of the server. Behind a transaction pooler, other clients would get
this session next, and Pulse another one without them. So each new connection is first asked for the process that
answers: behind a pooler, it is not the process that was connected to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

import psycopg
from django.db import ProgrammingError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.postgresql.base import Cursor
from psycopg import errors

from pulse_django.safe_logging import SafeLogger

from .dialects import Statements, statements_for

logger = SafeLogger("pulse_django.database")

# The settings of the session that the statements need.
_SESSION = """
SET default_transaction_isolation = 'read committed';
SET synchronous_commit = on;
SET jit = off;
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
"""

_PLACE = re.compile("%s|%%")  # a parameter, or an escaped percent sign
_BACKEND = "SELECT pg_catalog.pg_backend_pid()"
# The server does not know a prepared statement, or has another one with that name: others use the session, too.
_SHARED = (errors.InvalidSqlStatementName, errors.DuplicatePreparedStatement)


class Preparing(Statements):
    """Whether this kind of server can plan statements without their values."""

    can_prepare = True


class PreparedStatements:
    """The prepared statements of a thread's connection. After a lost connection, those of the next one."""

    def __init__(self) -> None:
        self._session: psycopg.Connection[Any] | None = None  # the connection that was checked
        self._is_direct_session = False
        self._is_given_up = False
        self._names: dict[str, str] = {}  # by SQL, of statements that are sent together with others

    def can_run(self, connection: BaseDatabaseWrapper, settings: str) -> bool:
        """Return whether this connection can prepare statements. A new connection gets ``settings`` first."""
        if self._is_given_up:
            return False
        connection.ensure_connection()
        if connection.connection is not self._session:
            with connection.cursor() as cursor:
                cursor.execute(_BACKEND)
                is_direct = cursor.fetchone()[0] == cursor.connection.info.backend_pid
                self._is_direct_session = is_direct and statements_for(Preparing, connection.alias).can_prepare
                if self._is_direct_session:
                    cursor.execute(_SESSION + settings)
                    connection.connection.prepare_threshold = 0
            self._session, self._names = connection.connection, {}
        return self._is_direct_session

    def run(self, connection: BaseDatabaseWrapper, sql: str, params: Any) -> list[tuple[Any, ...]]:
        """Run one statement in its own transaction."""
        with self._errors_of(connection), psycopg.Cursor(connection.connection) as cursor:
            cursor.execute(sql, params, prepare=True)
            return cursor.fetchall()

    def run_message(
        self, connection: BaseDatabaseWrapper, statements: Sequence[tuple[str, Sequence[Any]]]
    ) -> list[list[tuple[Any, ...]]]:
        """Run several statements as one transaction, in one message. Return the rows of each.

        It does not use a pipeline: psycopg sends each statement of a pipeline separately, and a client that freezes
        between two would keep the locks of the first. After an error, the transaction stays open.
        """
        with self._errors_of(connection), psycopg.ClientCursor(connection.connection) as cursor:
            calls = [_call(self._name_of(cursor, sql), len(params)) for sql, params in statements]
            values = [value for _, params in statements for value in params]
            cursor.execute("; ".join(["BEGIN", *calls, "COMMIT"]), values, prepare=False)
            answers = []
            for _ in statements:
                cursor.nextset()
                answers.append(cursor.fetchall())
            return answers

    def _name_of(self, cursor: psycopg.ClientCursor[Any], sql: str) -> str:
        """Return the name of a statement. Prepare it if it is not prepared yet."""
        if sql not in self._names:
            name = f"pulse_{len(self._names)}"
            places = count(1)
            numbered = _PLACE.sub(lambda found: "%" if found[0] == "%%" else f"${next(places)}", sql)
            cursor.execute(f"PREPARE {name} AS {numbered}", prepare=False)
            self._names[sql] = name
        return self._names[sql]

    @contextmanager
    def _errors_of(self, connection: BaseDatabaseWrapper) -> Iterator[None]:
        """Raise errors as Django does. Note errors that show that this session is shared."""
        try:
            with connection.wrap_database_errors:
                yield
        except Exception as error:
            if isinstance(error.__cause__, _SHARED):
                self._is_given_up = True
                logger.warning("Statements are not prepared any more: the server's session is shared with others")
            elif isinstance(error.__cause__, errors.FeatureNotSupported):
                connection.close()  # a type in a kept plan has changed: another session makes new plans
            raise


# Statements that the project's own connections send one at a time. psycopg prepares them through the protocol, so that
# they use no name that the project could use. Connections with other settings or wrappers are left alone.

# How often a connection sends it before it is prepared. Many connections are opened for a request that sends it once.
SENT_BEFORE_PREPARED = 3
_OF_SESSION = f"{_BACKEND}, pg_catalog.current_setting('default_transaction_isolation') = 'read committed'"


class NotPrepared(ProgrammingError):
    """The server has lost a prepared statement. Nothing was done."""


@dataclass(slots=True)
class _Session:
    sent: int = 0
    can_prepare: bool | None = None  # None: not checked yet


_sessions: WeakKeyDictionary[Any, _Session] = WeakKeyDictionary()


def prepare_nothing_in(raw: psycopg.Connection[Any]) -> None:
    """Keep psycopg from preparing statements on a connection: after a rollback, it removes all that exist."""
    _sessions[raw] = _Session(can_prepare=False)


def is_prepared_in(connection: BaseDatabaseWrapper) -> bool:
    """Return whether to send a frequent statement with ``run_prepared``."""
    raw = connection.connection
    if raw is None or raw.prepare_threshold is not None or raw.cursor_factory is not Cursor:
        return False
    pool = connection.settings_dict["OPTIONS"].get("pool")
    if connection.execute_wrappers or connection.queries_logged or (isinstance(pool, dict) and "reset" in pool):
        return False
    connection.validate_thread_sharing()
    connection.validate_no_broken_transaction()
    session = _sessions.get(raw)
    if session is None:
        session = _sessions[raw] = _Session()
    if session.can_prepare is None:
        session.sent += 1
        if session.sent <= SENT_BEFORE_PREPARED:
            return False
        with connection.wrap_database_errors, psycopg.Cursor(raw) as cursor:
            answers, is_usual = cursor.execute(_OF_SESSION).fetchone() or (0, False)
        can_prepare = statements_for(Preparing, connection.alias).can_prepare
        session.can_prepare = answers == raw.info.backend_pid and is_usual and can_prepare
    return session.can_prepare


def run_prepared(connection: BaseDatabaseWrapper, sql: str, params: Any) -> list[tuple[Any, ...]]:
    raw = connection.connection
    raw.prepare_threshold = 0  # Django sets None, with which psycopg prepares nothing
    try:
        with connection.wrap_database_errors, psycopg.Cursor(raw) as cursor:
            return cursor.execute(sql, params, prepare=True).fetchall()
    except Exception as error:
        if isinstance(error.__cause__, _SHARED):
            prepare_nothing_in(raw)
            raise NotPrepared(*error.args) from error.__cause__
        raise
    finally:
        raw.prepare_threshold = None


def _call(name: str, params: int) -> str:
    return f"EXECUTE {name}({', '.join(['%s'] * params)})" if params else f"EXECUTE {name}"
