"""Send the statements of verbs: alone in their own transaction, or in the caller's transaction.

Alone means one round trip with BEGIN, the required settings, the statement and COMMIT. The isolation level is READ
COMMITTED whatever the project or the role defaults to, because SKIP LOCKED and the second check of a fence after a lock
need it. ``synchronous_commit`` is on: if a crash lost a claim, the same attempt number would be used twice. Both are
set in the transaction, because session state does not survive a transaction pooler. The same holds for the timeouts of
a worker's own connections: a statement that waits for a table lock must end on the server before the worker
disconnects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

import psycopg
from django.core.exceptions import ImproperlyConfigured
from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    ProgrammingError,
    connections,
    models,
    router,
    transaction,
)
from django.db.backends.base.base import BaseDatabaseWrapper

from pulse_django.exceptions import NotInsideTransaction

from .prepared_statements import NotPrepared, PreparedStatements, is_prepared_in, run_prepared

LOCK_NOT_AVAILABLE = "55P03"

Row = tuple[Any, ...]
Table = TypeVar("Table", bound=models.Model)
Params = Sequence[Any] | Mapping[str, Any]

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED; SET LOCAL synchronous_commit = on; "
_COMMIT = "; COMMIT"
_DURABLY = ", pg_catalog.set_config('synchronous_commit', 'on', true)"
# The longest pause between two messages. If shorter, a process that waited for its CPU would lose its transaction. If
# longer, a frozen process would lock its rows for longer than its leases last.
_ANSWER_SOON = "SET LOCAL idle_in_transaction_session_timeout = '10s'; "
_TIMEOUTS = "PULSE_TIMEOUTS"  # the key for them, as SQL, in the settings of a connection
RENEW_DEADLINE = "PULSE_RENEW_DEADLINE"  # the key for a function that gives the present call more time
_PREPARED = "PULSE_PREPARED"  # the key for its prepared statements
_SHORT_TIMEOUTS = "PULSE_SHORT_TIMEOUTS"  # the key for those of ``hurried``
# The share of a statement's time in ``hurried``. If larger, leases expire while their rows are locked. If smaller,
# batches that would soon end are halved.
HURRIED_SHARE = 1 / 8


class TableManager(models.Manager[Table]):
    """A manager whose statements go to the database to which its table is written."""

    @property
    def write_alias(self) -> str:
        return self._db or router.db_for_write(self.model)


def with_timeouts(
    settings: Mapping[str, Any], *, lock: float, statement: float, prepared: PreparedStatements | None = None
) -> dict[str, Any]:
    """Return these settings of a connection, with limits in seconds for each of its statements.

    Also turn JIT off: compiling takes longer than any statement, and a wrong estimate of rows may trigger it.
    """
    limits = {"jit": "off", "lock_timeout": f"{lock * 1000:.0f}", "statement_timeout": f"{statement * 1000:.0f}"}
    timeouts = "".join(f"SET LOCAL {name} = {value}; " for name, value in limits.items())
    short = f"{timeouts}SET LOCAL statement_timeout = {HURRIED_SHARE * statement * 1000:.0f}; "
    return {**settings, _TIMEOUTS: timeouts, _SHORT_TIMEOUTS: short, _PREPARED: prepared}


@contextmanager
def hurried(alias: str) -> Iterator[None]:
    """Give the statements in this block a short time, if their connection has limits."""
    settings = connections[alias].settings_dict
    usual = {key: settings[key] for key in (_TIMEOUTS, _PREPARED) if key in settings}
    if usual:  # prepared statements have the limits of their session
        settings.update({_TIMEOUTS: settings[_SHORT_TIMEOUTS], _PREPARED: None})
    try:
        yield
    finally:
        settings.update(usual)


def renew_deadline(alias: str) -> None:
    """Give the next statement as much time as the first one of a call had."""
    connections[alias].settings_dict.get(RENEW_DEADLINE, lambda: None)()


def refuse_other_vendors(connection: BaseDatabaseWrapper) -> None:
    """Raise ImproperlyConfigured if the database is not PostgreSQL."""
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"Pulse stores its jobs in database {connection.alias!r}, which is {connection.vendor}, not PostgreSQL. "
            "Point DATABASES (or a router's db_for_write for pulse_django) at PostgreSQL 15 or newer."
        )


def is_in_callers_transaction(alias: str) -> bool:
    """Return whether the caller opened a transaction. Like Django's ``durable``, ignore the blocks of a TestCase."""
    connection = connections[alias]
    if not _is_in_transaction(connection):
        return False
    blocks = connection.atomic_blocks
    return not blocks or not all(getattr(block, "_from_testcase", False) for block in blocks)


def refuse_callers_transaction(alias: str, what: str = "this verb") -> None:
    """Raise NotInsideTransaction inside a transaction of the caller: ``what`` must commit on its own."""
    if is_in_callers_transaction(alias):
        raise NotInsideTransaction(f"{what} must commit on its own: call it outside atomic()")


def run_alone(
    alias: str, sql: str, params: Params, *, lock_timeout: float | None = None, plan_once: bool = False
) -> list[Row]:
    """Run one statement that must commit on its own. Wait at most ``lock_timeout`` seconds for a lock.

    ``plan_once``: keep its plan if the connection keeps plans. The plan must be good for any number of rows.
    """
    refuse_callers_transaction(alias)
    return run_joined(alias, sql, params, lock_timeout=lock_timeout, plan_once=plan_once)


def run_joined(
    alias: str, sql: str, params: Params, *, lock_timeout: float | None = None, plan_once: bool = False
) -> list[Row]:
    """Run one statement in the caller's transaction, or alone if there is none."""
    connection = connections[alias]
    refuse_other_vendors(connection)
    if _is_in_transaction(connection):
        return _execute(connection, sql, params)[0]
    prepared: PreparedStatements | None = connection.settings_dict.get(_PREPARED)
    if plan_once and prepared is not None and prepared.can_run(connection, _of_session(connection)):
        with _without_values:
            return prepared.run(connection, sql, params)
    return _run_in_own_transaction(connection, sql, params, lock_timeout)[0]


def run_often(alias: str, sql: str, params: Params) -> list[Row]:
    """Do as ``run_joined``, for a statement with RETURNING that the project's own connections send often.

    It works with any isolation level. If its plan is kept, the statement itself makes its commit durable.
    """
    connection = connections[alias]
    refuse_other_vendors(connection)
    connection.close_if_health_check_failed()
    is_alone = not _is_in_transaction(connection)
    try:
        if is_prepared_in(connection):
            with _without_values:
                rows = run_prepared(connection, sql + _DURABLY if is_alone else sql, params)
            return [row[:-1] for row in rows] if is_alone else rows
    except NotPrepared:
        if not is_alone:
            raise
    except DatabaseError:
        if is_alone and connection.connection is not None and connection.connection.closed:
            connection.close()  # so that the next statement opens another
        raise
    return run_joined(alias, sql, params)


def run_message(alias: str, statements: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
    """Run several statements in one message and one transaction, which commits on its own. Return the rows of each.

    Each statement has its own snapshot, taken after the one before it has ended.
    """
    refuse_callers_transaction(alias)
    connection = connections[alias]
    refuse_other_vendors(connection)
    if _is_in_transaction(connection):  # in a TestCase's
        return [_execute(connection, sql, params)[0] for sql, params in statements]
    prepared: PreparedStatements | None = connection.settings_dict.get(_PREPARED)
    if prepared is not None and prepared.can_run(connection, _of_session(connection)):
        try:
            with _without_values:
                return prepared.run_message(connection, statements)
        except BaseException:
            _leave_failed_transaction(connection)
            raise
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        with joined(alias):
            return [_execute(connection, sql, params)[0] for sql, params in statements]
    text = "; ".join(sql for sql, _ in statements)
    return _run_in_own_transaction(
        connection, text, [value for _, params in statements for value in params], None, answers=len(statements)
    )


def run_in_turn(
    alias: str,
    first: tuple[str, Params],
    then: Callable[[list[Row]], Sequence[tuple[str, Sequence[Any]]]],
    *,
    lock_timeout: float | None = None,
) -> tuple[list[Row], list[list[Row]]]:
    """Run a statement, and in a second message the statements made from its rows, in one transaction.

    Use the caller's transaction, if there is one. Return the rows of the first statement, and of each of the others.
    """
    connection = connections[alias]
    refuse_other_vendors(connection)
    if _is_in_transaction(connection) or connection.settings_dict["OPTIONS"].get("server_side_binding"):
        with joined(alias):
            [rows] = _execute(connection, *first)
            return rows, [_execute(connection, sql, params)[0] for sql, params in then(rows)]
    begin = _begin(connection, lock_timeout) + _ANSWER_SOON
    try:
        [rows] = _execute(connection, f"{begin}{first[0]}", first[1], begin.count(";"))
        statements = then(rows)
        text = "".join(f"{sql}; " for sql, _ in statements)
        values = [value for _, params in statements for value in params]
        return rows, _execute(connection, f"{text}COMMIT", values, answers=len(statements))
    except BaseException:
        _leave_failed_transaction(connection)
        raise


def read_message(alias: str, questions: Sequence[tuple[str, Sequence[Any]]]) -> list[list[Row]]:
    """Run several queries in one message, in the current transaction if there is one. Return the rows of each."""
    connection = connections[alias]
    refuse_other_vendors(connection)
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        return [_execute(connection, sql, params)[0] for sql, params in questions]
    values = [value for _, params in questions for value in params]
    return _execute(connection, "; ".join(sql for sql, _ in questions), values, answers=len(questions))


def copy_joined(alias: str, statement: str, rows: bytes) -> None:
    """Write rows by COPY in the open transaction."""
    connection = connections[alias]
    connection.validate_no_broken_transaction()
    with (
        _without_copied_values,
        connection.wrap_database_errors,
        connection.cursor() as cursor,
        cursor.copy(statement) as sink,
    ):
        sink.write(rows)


@contextmanager
def joined(alias: str) -> Iterator[None]:
    """Run several statements in the caller's transaction, or in a new one if there is none."""
    if _is_in_transaction(connections[alias]):
        yield
        return
    with durable(alias):
        yield


@contextmanager
def durable(alias: str) -> Iterator[None]:
    """Open an outermost transaction that is READ COMMITTED and durable."""
    connection = connections[alias]
    nested = connection.in_atomic_block  # in a TestCase; otherwise the next line raises
    with transaction.atomic(using=alias, durable=True):
        if not nested:
            with connection.cursor() as cursor:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
                cursor.execute("SET LOCAL synchronous_commit = on")
                for timeout in connection.settings_dict.get(_TIMEOUTS, "").split(";")[:-1]:
                    cursor.execute(timeout)
        yield


@contextmanager
def undone_alone(alias: str) -> Iterator[None]:
    """On an error, undo only this block, so that the caller's transaction can go on."""
    connection = connections[alias]
    if not _is_in_transaction(connection):
        yield
        return
    # Not atomic(): if the caller has turned autocommit off, it would roll back the whole transaction.
    savepoint: Any = connection.savepoint()
    try:
        yield
    except BaseException:
        with suppress(DatabaseError):  # the connection may be lost
            connection.savepoint_rollback(savepoint)
        raise
    connection.savepoint_commit(savepoint)


def is_in_transaction(alias: str) -> bool:
    return _is_in_transaction(connections[alias])


def _is_in_transaction(connection: BaseDatabaseWrapper) -> bool:
    return connection.in_atomic_block or not connection.get_autocommit()


def _execute(
    connection: BaseDatabaseWrapper, message: str, params: Params, passed: int = 0, answers: int = 1
) -> list[list[Row]]:
    """Send a message. Skip its first ``passed`` results, and return the rows of the next ``answers``."""
    with _without_values, connection.cursor() as cursor:
        cursor.execute(message, params)
        for _ in range(passed):
            cursor.nextset()
        rows: list[list[Row]] = []
        while len(rows) < answers:
            rows.append(list(cursor.fetchall()) if cursor.description else [])
            cursor.nextset()
        return rows


def limited(execute: Any, sql: Any, params: Any, many: bool, context: Mapping[str, Any]) -> Any:
    """Send the ORM's statements with the timeouts of their connection. An entry of its ``execute_wrappers``."""
    connection, cursor = context["connection"], context["cursor"]
    if many or _is_in_transaction(connection) or not isinstance(sql, str) or sql.startswith("BEGIN"):
        return execute(sql, params, many, context)
    begin = _begin(connection, None)
    try:
        answer = execute(f"{begin}{sql}{_COMMIT}", params, many, context)
    except BaseException:
        _leave_failed_transaction(connection)
        raise
    for _ in range(begin.count(";")):
        cursor.nextset()
    return answer


def _begin(connection: BaseDatabaseWrapper, lock_timeout: float | None) -> str:
    begin = _BEGIN + connection.settings_dict.get(_TIMEOUTS, "")
    return begin if lock_timeout is None else f"{begin}SET LOCAL lock_timeout = {lock_timeout * 1000:.0f}; "


def _of_session(connection: BaseDatabaseWrapper) -> str:
    """Return the timeouts of a connection as settings of its session."""
    timeouts: str = connection.settings_dict[_TIMEOUTS]
    return timeouts.replace("SET LOCAL ", "SET ")


def _run_in_own_transaction(
    connection: BaseDatabaseWrapper, sql: str, params: Params, lock_timeout: float | None, answers: int = 1
) -> list[list[Row]]:
    if connection.settings_dict["OPTIONS"].get("server_side_binding"):
        # The extended protocol takes one statement at a time, so this needs five round trips instead of one.
        with joined(connection.alias):
            return _execute(connection, sql, params)
    begin = _begin(connection, lock_timeout)
    try:  # the results of BEGIN and of each SET come before ours
        return _execute(connection, f"{begin}{sql}{_COMMIT}", params, begin.count(";"), answers)
    except BaseException:
        _leave_failed_transaction(connection)
        raise


class _WithoutValues:
    """Remove values from database errors. PostgreSQL repeats the row and the parameters, and logs, dead letters and
    error trackers would show them. This is a class because a generator would cost each statement more."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        cause = error.__cause__ if isinstance(error, self._kinds) else None
        if error is not None and isinstance(cause, psycopg.Error) and cause.diag.message_primary:
            error.args = cause.args = (cause.diag.message_primary,)


_without_values = _WithoutValues(DataError, IntegrityError, ProgrammingError)
_without_copied_values = _WithoutValues(DatabaseError)  # after any error in COPY, PostgreSQL repeats the last row


def _leave_failed_transaction(connection: BaseDatabaseWrapper) -> None:
    """Roll back after an error: Django does not know of the BEGIN in the statement."""
    raw = connection.connection
    try:
        if raw is not None and not raw.closed:
            raw.rollback()
    except psycopg.Error:
        pass  # it died meanwhile
    if raw is not None and raw.closed:
        connection.close()  # so that the next statement opens another


# Rows in the text format of COPY.

# A backslash begins an escape. The others end a column or a row.
_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL = r"\N"


class Json(NamedTuple):
    """A value of a jsonb column, as its text."""

    text: str


def copy_from(table: str, columns: Iterable[str]) -> str:
    """Return the statement that reads rows of these columns."""
    return f"COPY {table} ({', '.join(columns)}) FROM STDIN"


def copied(value: Any) -> str:
    """Return a value in the format of COPY."""
    if value is None:
        return _NULL
    if isinstance(value, str):
        return value.translate(_ESCAPED)
    if isinstance(value, bool):
        return "t" if value else "f"
    if isinstance(value, int):
        return int.__repr__(value)  # of an Enum too
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Json):
        return copied_json(value.text)
    if isinstance(value, tuple):
        quoted = ['"' + text.replace("\\", r"\\").replace('"', r"\"") + '"' for text in value]
        return f"{{{','.join(quoted)}}}".translate(_ESCAPED)
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    raise TypeError(f"{type(value).__name__} has no text for COPY")


def copied_json(text: str) -> str:
    """Return a JSON text in the format of COPY. It contains no tabs and line ends: JSON escapes them."""
    return text.replace("\\", r"\\") if "\\" in text else text
