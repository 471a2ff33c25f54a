"""Keep the connections of a handler's thread for the next handler, and reset their state.

Connecting takes longer than most jobs. So a thread keeps its connections while it has work, whatever ``CONN_MAX_AGE``
is, and closes them when it is idle. One message resets everything that a handler may have changed: cursors, role,
settings, LISTENs, advisory locks, temporary tables, the values of sequences. It is sent when a handler ends, and its
answer is read before the next handler begins. No handler waits for it.

A connection that cannot be reset is closed: with an open transaction, with statements that were prepared by name, or
with changed settings of psycopg.
"""

from __future__ import annotations

import select
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created
from psycopg import Connection
from psycopg.errors import Diagnostic
from psycopg.pq import ExecStatus, TransactionStatus
from psycopg.pq.abc import PGconn
from psycopg.sql import SQL, Composable, Identifier, Literal

from pulse_django.queue.database.prepared_statements import prepare_nothing_in

# Seconds. A connection that is idle for longer is closed, because it occupies a process of the server.
KEPT_IDLE = 10.0
# Seconds. With CONN_MAX_AGE of 0, an older connection is closed, because the memory of a server process grows.
MAX_AGE = 600.0
# Seconds to wait for the answer to a reset. A server that takes longer counts as dead.
PATIENCE_WITH_RESET = 5.0

# DISCARD ALL, but without DISCARD PLANS and DEALLOCATE ALL, to keep plans and psycopg's prepared statements. If a
# handler prepared a statement by name, the connection is closed: DEALLOCATE ALL would also remove those of psycopg.
_RESET = SQL(
    "CLOSE ALL; SET SESSION AUTHORIZATION DEFAULT; RESET ALL; UNLISTEN *; DISCARD TEMP; DISCARD SEQUENCES; "
    "{again}{last}"
)
# Planning it would take the server more than half of the time of the message, so it is prepared when a handler opens a
# connection: through the protocol, so that ``from_sql`` does not count it. If a handler runs DEALLOCATE ALL, it is
# gone; then the reset fails, and the connection is closed.
_UNLOCK_AND_COUNT = (
    "SELECT pg_catalog.pg_advisory_unlock_all(),"
    " (SELECT pg_catalog.count(*) FROM pg_catalog.pg_prepared_statement() WHERE from_sql)"
)
_PREPARED, _EXECUTE = b"pulse_reset", "EXECUTE pulse_reset"
# The settings that receivers of connection_created have made. The view does not have the role.
_SET_LATER = """
SELECT name, setting FROM pg_catalog.pg_settings WHERE source = 'session' AND name <> 'TimeZone'
UNION ALL
SELECT 'role', role FROM pg_catalog.current_setting('role') AS role WHERE role <> 'none'
"""

# The attributes of psycopg with the handlers of notices and notifications, and with unhandled notifications.
_RECEIVING = ("_notice_handlers", "_notify_handlers", "_notifies_backlog")

Raw = Connection[tuple[object, ...]]

_GOOD = frozenset({ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK})


@dataclass(slots=True)
class _Kept:
    """The facts that are needed to reset a connection."""

    raw: Raw
    reset: bytes
    opened_at: float
    client: tuple[object, ...] = ()  # its settings in psycopg
    is_being_reset: bool = False
    is_ended: bool = False  # the server ended it

    def note_end(self, notice: Diagnostic) -> None:
        if notice.severity_nonlocalized in ("FATAL", "PANIC"):
            self.is_ended = True


class _Here(threading.local):
    """The connections of this thread, by alias. None: it cannot be reset."""

    def __init__(self) -> None:
        self.opened: dict[str, _Kept | None] = {}
        self.calls_handlers = False


_here = _Here()


def tidy_connections() -> None:
    """Begin to reset this thread's connections after a handler, and close those that cannot be reset."""
    opened = _here.opened
    if not opened:
        return
    if not opened.keys() <= connections.settings.keys():
        _forget_removed()
    for wrapper in connections.all(initialized_only=True):  # a receiver of the project may have skipped ours
        kept = opened.get(wrapper.alias)
        if wrapper.connection is None and not wrapper.in_atomic_block and wrapper.autocommit in (True, False):
            is_tidied = not (wrapper.run_on_commit or wrapper.savepoint_ids)
        else:
            is_tidied = _is_tidied(wrapper, kept)
        if not is_tidied:
            _discard(wrapper)
        if not is_tidied or wrapper.connection is None:  # it is closed, or in the pool again
            opened.pop(wrapper.alias, None)


def ready_connections() -> None:
    """Wait until this thread's connections are reset, and close dead ones. Call it before a handler."""
    _here.calls_handlers = True
    if not _here.opened.keys() <= connections.settings.keys():
        _forget_removed()
    for alias, kept in list(_here.opened.items()):
        if kept is None:
            continue
        is_being_reset, kept.is_being_reset = kept.is_being_reset, False
        wrapper = connections[alias]
        is_as_new = _is_reset(kept.raw) if is_being_reset else _can_be_read(kept.raw)
        if wrapper.connection is not kept.raw or not is_as_new or kept.is_ended:
            _discard(wrapper)
            del _here.opened[alias]


def _forget_removed() -> None:
    """Close connections whose alias a handler has removed from the settings."""
    for alias in [alias for alias in _here.opened if alias not in connections.settings]:
        if (kept := _here.opened.pop(alias)) is not None:
            with suppress(Exception):
                kept.raw.close()


def close_connections() -> None:
    """Close this thread's connections, because it is idle."""
    _forget_removed()
    for wrapper in connections.all(initialized_only=True):
        _discard(wrapper)
    _here.opened.clear()


def has_connections() -> bool:
    return bool(_here.opened)


def _is_tidied(wrapper: BaseDatabaseWrapper, kept: _Kept | None) -> bool:
    if wrapper.vendor != "postgresql":
        wrapper.close_if_unusable_or_obsolete()
        return wrapper.connection is not None and not wrapper.in_atomic_block
    raw = wrapper.connection
    if (
        raw is None
        or kept is None
        or raw is not kept.raw
        or raw.closed
        or raw.info.transaction_status != TransactionStatus.IDLE
        or _is_changed_here(wrapper, kept)
        or (
            (age := wrapper.settings_dict["CONN_MAX_AGE"]) is not None
            and time.monotonic() - kept.opened_at > (age or MAX_AGE)
        )
    ):
        return False
    try:
        raw.pgconn.send_query(kept.reset)  # the rest is sent when the answer is read
    except Exception:  # after any error, use a new connection
        return False
    wrapper.errors_occurred = False
    wrapper.health_check_done = True  # type: ignore[attr-defined]  # it has just responded
    kept.is_being_reset = True
    if not wrapper.settings_dict["OPTIONS"].get("pool"):
        return True
    kept.is_being_reset = False
    if not _is_reset(raw):
        return False
    wrapper.close()  # back to the pool, clean
    return True


def _is_changed_here(wrapper: BaseDatabaseWrapper, kept: _Kept) -> bool:
    return (
        wrapper.in_atomic_block
        or not wrapper.get_autocommit()
        or bool(wrapper.run_on_commit or wrapper.savepoint_ids or wrapper.execute_wrappers)
        or wrapper.needs_rollback
        or _client_settings(kept.raw) != kept.client
    )


def _client_settings(raw: Raw) -> tuple[object, ...]:
    """Return the attributes of psycopg's connection that a handler can change."""
    return (
        raw.isolation_level,
        raw.read_only,
        raw.deferrable,
        raw.prepare_threshold,
        raw.row_factory,
        raw.cursor_factory,
        *(len(getattr(raw, name, None) or ()) for name in _RECEIVING),
    )


def _is_reset(raw: Raw) -> bool:
    """Read the answer to a reset. Return whether it succeeded, and no statement is prepared by name."""
    with suppress(Exception):
        return _read_answer(raw.pgconn, time.monotonic() + PATIENCE_WITH_RESET)
    return False


def _can_be_read(raw: Raw) -> bool:
    """Read what the server has sent. It sends a notice before it ends a session."""
    with suppress(Exception):
        raw.pgconn.consume_input()
        raw.pgconn.is_busy()  # it handles received messages
        return True
    return False


def _read_answer(pgconn: PGconn, until: float) -> bool:
    """Read an answer with few calls: each call that may wait releases the interpreter lock."""
    good, prepared = True, b""
    pgconn.consume_input()
    while True:
        while pgconn.is_busy():
            poll = select.poll()
            poll.register(pgconn.socket, select.POLLIN)
            if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                return False
            pgconn.consume_input()
        result = pgconn.get_result()
        if result is None:
            pgconn.is_busy()  # it handles messages after the answer: the end of the session
            while pgconn.notifies() is not None:
                pass  # notifications for the last handler
            return good and prepared == b"0"
        good = good and result.status in _GOOD
        if result.status == ExecStatus.TUPLES_OK:
            prepared = result.get_value(0, result.nfields - 1) or b""


def _discard(wrapper: BaseDatabaseWrapper) -> None:
    with suppress(Exception):
        if wrapper.connection is not None:
            wrapper.connection.close()
        if wrapper.settings_dict.get("OPTIONS", {}).get("pool"):
            wrapper.in_atomic_block = False
            wrapper.close()  # so that the pool notices
    with suppress(AttributeError):
        del connections[wrapper.alias]


def _note_opened(connection: BaseDatabaseWrapper, **_: Any) -> None:
    """Note the state to which a new connection is reset: its state now, with settings of the project's receivers."""
    if connection_created.receivers[-1][0][0] == id(_note_opened):
        _here.opened[connection.alias] = _kept(connection) if connection.vendor == "postgresql" else None
    else:  # a later receiver may change settings that are not known here
        _here.opened[connection.alias] = None
        connection_created.disconnect(_note_opened)
        connection_created.connect(_note_opened)


def _kept(wrapper: BaseDatabaseWrapper) -> _Kept | None:
    raw = wrapper.connection
    if raw is None:
        return None
    again: list[Composable] = []
    if wrapper.timezone_name:
        again.append(SQL("SET TimeZone = {}; ").format(Literal(wrapper.timezone_name)))
    if len(connection_created.receivers) > 1:
        if raw.info.parameter_status("session_authorization") != raw.info.user:
            return None
        with wrapper.cursor() as cursor:
            cursor.execute(_SET_LATER)
            set_again = SQL("SELECT pg_catalog.set_config({}, {}, false); ")
            again += [set_again.format(Literal(name), Literal(value)) for name, value in cursor.fetchall()]
    elif role := wrapper.settings_dict["OPTIONS"].get("assume_role"):
        again.append(SQL("SET ROLE {}; ").format(Identifier(role)))
    is_pooled = bool(wrapper.settings_dict["OPTIONS"].get("pool"))
    last = _EXECUTE if _here.calls_handlers and not is_pooled and _is_prepared(raw) else _UNLOCK_AND_COUNT
    reset = _RESET.format(again=SQL("").join(again), last=SQL(last)).as_bytes(raw)
    kept = _Kept(raw, reset, time.monotonic())
    if not is_pooled:
        raw.add_notice_handler(kept.note_end)
    kept.client = _client_settings(raw)
    return kept


def _is_prepared(raw: Raw) -> bool:
    """Prepare the last statement of a reset. Return False if another process answers than the one connected to.

    Behind a pooler, another process may answer the next message.
    """
    answer = raw.pgconn.exec_(b"SELECT pg_catalog.pg_backend_pid()")
    if answer.status != ExecStatus.TUPLES_OK or answer.get_value(0, 0) != str(raw.info.backend_pid).encode():
        return False
    prepare_nothing_in(raw)
    return raw.pgconn.prepare(_PREPARED, _UNLOCK_AND_COUNT.encode()).status == ExecStatus.COMMAND_OK


connection_created.connect(_note_opened)
