"""Read-only transactions: the server refuses every write, and cancels a statement that takes too long."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from .transactions import Row, refuse_other_vendors

# On a healthy server, no read takes a tenth of it. On an overloaded one, it must not add to the load for long.
TIMEOUT = "15s"
# Do not wait for a table that is being altered: an operator, a probe or a page needs an answer.
LOCK_TIMEOUT = "1s"

# One round trip for all settings, which end with the transaction. Some statements are long: for the health conditions,
# the server's just-in-time compiler would take 5 s, and without it the statement takes 0.02 s.
_SETTINGS = """
SELECT
    pg_catalog.set_config('transaction_read_only', %s, true), pg_catalog.set_config('statement_timeout', %s, true),
    pg_catalog.set_config('lock_timeout', %s, true), pg_catalog.set_config('jit', 'off', true)
"""


@contextmanager
def read_only(alias: str) -> Iterator[None]:
    """Read from one snapshot, so that the numbers are consistent. In a caller's transaction, use its snapshot."""
    connection = connections[alias]
    refuse_other_vendors(connection)
    if connection.in_atomic_block:
        yield
        return
    with transaction.atomic(using=alias):
        with connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            cursor.execute(_SETTINGS, ["on", TIMEOUT, LOCK_TIMEOUT])
        yield


def rows(alias: str, sql: str, params: Any = ()) -> list[Row]:
    """Run a query, in the current transaction if there is one."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def is_lost(alias: str) -> bool:
    """Return whether the connection is gone, so that nothing was read."""
    connection = connections[alias].connection
    return connection is None or bool(connection.closed)


@contextmanager
def briefly(alias: str, timeout: str) -> Iterator[None]:
    """Read with this timeout for each statement. A caller's transaction gets its own settings back."""
    connection = connections[alias]
    refuse_other_vendors(connection)
    is_nested = connection.in_atomic_block
    with transaction.atomic(using=alias):
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS, ["on", timeout, LOCK_TIMEOUT])
        yield
        if is_nested:  # a savepoint that is rolled back restores the settings
            transaction.set_rollback(True, using=alias)
