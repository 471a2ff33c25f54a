"""Classify database errors for loops that must go on, and choose how long to wait before the next try.

No error ends a loop. An error that is not in the table is a mistake in Pulse or in the schema: it is logged with its
traceback, and the loop retries more slowly.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum

import psycopg
from django.db import Error, InterfaceError, OperationalError


class DatabaseFault(StrEnum):
    """Kinds of errors, by their remedy."""

    CUT_OFF = "cut off"  # the connection is unusable: open another
    BUSY = "busy"  # blocked by another transaction: retry soon
    FULL = "full"  # the server has no resources left: retry later
    CHANGING = "changing"  # the schema is being migrated: retry later
    MISTAKE = "mistake"  # neither waiting nor giving up helps


# By SQLSTATE, or by its class: the first two characters.
_MEANING = {
    "08": DatabaseFault.CUT_OFF,  # connection exceptions
    "57P01": DatabaseFault.CUT_OFF,  # admin_shutdown, pg_terminate_backend
    "57P02": DatabaseFault.CUT_OFF,  # crash_shutdown
    "57P03": DatabaseFault.CUT_OFF,  # cannot_connect_now: starting up
    "57P04": DatabaseFault.CUT_OFF,  # database_dropped
    "57P05": DatabaseFault.CUT_OFF,  # idle_session_timeout
    "25006": DatabaseFault.CUT_OFF,  # read_only_sql_transaction: a standby; another address may be the primary
    "25P03": DatabaseFault.CUT_OFF,  # idle_in_transaction_session_timeout
    "28": DatabaseFault.CUT_OFF,  # a role or password may be changing
    "3D000": DatabaseFault.CUT_OFF,  # the database does not exist (yet)
    "26000": DatabaseFault.CUT_OFF,  # invalid_sql_statement_name: others use the session, too
    "42P05": DatabaseFault.CUT_OFF,  # duplicate_prepared_statement: the same
    "XX000": DatabaseFault.CUT_OFF,  # internal error; PgBouncer also sends it when the server is gone
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

# Seconds before the first retry, and the longest pause. Shorter pauses flood a server that is coming back. Longer ones
# delay work once it is back.
_PAUSES = {
    DatabaseFault.CUT_OFF: (0.05, 1.0),
    DatabaseFault.BUSY: (0.02, 0.5),
    DatabaseFault.FULL: (0.5, 5.0),
    DatabaseFault.CHANGING: (0.5, 5.0),
    DatabaseFault.MISTAKE: (1.0, 10.0),
}


def fault_of(error: BaseException) -> DatabaseFault:
    """Return the kind of an error."""
    state = sqlstate_of(error)
    if state:
        return _MEANING.get(state) or _MEANING.get(state[:2]) or DatabaseFault.MISTAKE
    # libpq's own errors have no SQLSTATE: refused, reset, timed out, closed.
    return DatabaseFault.CUT_OFF if isinstance(error, _LIBPQS_OWN) else DatabaseFault.MISTAKE


def is_refused(error: BaseException) -> bool:
    """Return whether the role lacks a right that the statement needs."""
    return sqlstate_of(error) == "42501"


def is_timeout(error: BaseException) -> bool:
    """Return whether the statement took longer than ``statement_timeout``."""
    return sqlstate_of(error) == "57014"


def sqlstate_of(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, Error) else error
    return getattr(cause, "sqlstate", None) or ""


@dataclass(slots=True)
class Patience:
    """Computes pauses that grow with each failure, with jitter so that processes do not retry at the same time."""

    failures: int = 0

    def pause(self, fault: DatabaseFault) -> float:
        """Note a failure, and return how long to wait."""
        first, longest = _PAUSES[fault]
        self.failures += 1
        return min(longest, first * 2.0 ** min(self.failures - 1, 30)) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret

    def succeeded(self) -> bool:
        """Note a success. Return whether there were failures before it."""
        recovered, self.failures = self.failures > 0, 0
        return recovered
