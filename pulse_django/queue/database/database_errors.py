"""What a database error means for a loop that must go on: a table of SQLSTATEs, and how long to wait.

Nothing in it ends a loop. An error that is not in the table is a mistake of ours or of the schema's: it is logged with
its traceback, and tried again more slowly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

import psycopg
from django.db import Error, InterfaceError, OperationalError


class DatabaseFault(StrEnum):
    """The kinds of trouble, by what helps."""

    CUT_OFF = "cut off"  # the connection is of no use any more: open another
    BUSY = "busy"  # another transaction was in the way: try the same again soon
    FULL = "full"  # the server has no room for us now: the same again, later
    CHANGING = "changing"  # the schema is being migrated under our feet: the same again, later
    MISTAKE = "mistake"  # nothing that waiting would heal, but neither would giving up


# By SQLSTATE, or by its class: the first two characters.
_MEANING = {
    "08": DatabaseFault.CUT_OFF,  # connection exceptions
    "57P01": DatabaseFault.CUT_OFF,  # admin_shutdown, pg_terminate_backend
    "57P02": DatabaseFault.CUT_OFF,  # crash_shutdown
    "57P03": DatabaseFault.CUT_OFF,  # cannot_connect_now: starting up
    "57P04": DatabaseFault.CUT_OFF,  # database_dropped
    "57P05": DatabaseFault.CUT_OFF,  # idle_session_timeout
    "25006": DatabaseFault.CUT_OFF,  # read_only_sql_transaction: this is a standby; another address may not be
    "25P03": DatabaseFault.CUT_OFF,  # idle_in_transaction_session_timeout
    "28": DatabaseFault.CUT_OFF,  # a role or password that is being changed
    "3D000": DatabaseFault.CUT_OFF,  # the database is not there, yet or any more
    "26000": DatabaseFault.CUT_OFF,  # invalid_sql_statement_name: the session is not ours alone
    "42P05": DatabaseFault.CUT_OFF,  # duplicate_prepared_statement: the same
    "XX000": DatabaseFault.CUT_OFF,  # internal error, also PgBouncer's way of saying that the server is gone
    "40001": DatabaseFault.BUSY,  # serialization_failure
    "40P01": DatabaseFault.BUSY,  # deadlock_detected
    "55P03": DatabaseFault.BUSY,  # lock_not_available
    "57014": DatabaseFault.BUSY,  # query_canceled, statement_timeout
    "53": DatabaseFault.FULL,  # disk full, out of memory, too many connections
    "54": DatabaseFault.FULL,  # program limits
    "58": DatabaseFault.FULL,  # system errors of the server's host
    "42P01": DatabaseFault.CHANGING,  # undefined_table
    "42703": DatabaseFault.CHANGING,  # undefined_column
    "42501": DatabaseFault.CHANGING,  # insufficient_privilege
    "0A000": DatabaseFault.CHANGING,  # cached plan must not change result type
}

_LIBPQS_OWN = (OperationalError, InterfaceError, psycopg.OperationalError, psycopg.InterfaceError)

# Seconds before the first repetition, and the longest. Shorter floods a server that is coming back; longer leaves work
# lying once it is there.
_PAUSES = {
    DatabaseFault.CUT_OFF: (0.05, 1.0),
    DatabaseFault.BUSY: (0.02, 0.5),
    DatabaseFault.FULL: (0.5, 5.0),
    DatabaseFault.CHANGING: (0.5, 5.0),
    DatabaseFault.MISTAKE: (1.0, 10.0),
}


def fault_of(error: BaseException) -> DatabaseFault:
    """Say what kind of trouble an exception is."""
    state = sqlstate_of(error)
    if state:
        return _MEANING.get(state) or _MEANING.get(state[:2]) or DatabaseFault.MISTAKE
    # libpq's own errors have no SQLSTATE: refused, reset, timed out, closed.
    return DatabaseFault.CUT_OFF if isinstance(error, _LIBPQS_OWN) else DatabaseFault.MISTAKE


def is_refused(error: BaseException) -> bool:
    """Whether the role lacks a right that the statement needs."""
    return sqlstate_of(error) == "42501"


def sqlstate_of(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, Error) else error
    return getattr(cause, "sqlstate", None) or ""


@dataclass(slots=True)
class Patience:
    """Waits longer from failure to failure, and never in step with the others."""

    failures: int = 0

    def pause(self, fault: DatabaseFault) -> float:
        """Return for how long to wait after one more failure."""
        first, longest = _PAUSES[fault]
        self.failures += 1
        return min(longest, first * 2.0 ** min(self.failures - 1, 30)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def succeeded(self) -> bool:
        """Note a success. Say whether it ends a time of failures."""
        recovered, self.failures = self.failures > 0, 0
        return recovered
