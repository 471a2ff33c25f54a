"""Read without touching: transactions in which the server refuses every write, and gives up in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.db import connections, transaction

from .transactions import Row, refuse_other_vendors

# No read takes a tenth of it on a healthy server; on a sick one it must not add to the load for long.
TIMEOUT = "15s"
# A table that is being altered is not waited for: an operator, a probe or a page wants an answer.
LOCK_TIMEOUT = "1s"

# One round trip for all; they end with the transaction. Some of these statements are long: the server's just-in-time
# compiler would take 5 s for that of the conditions, which takes 0.02 s without it.
_SETTINGS = """
SELECT
    pg_catalog.set_config('transaction_read_only', %s, true), pg_catalog.set_config('statement_timeout', %s, true),
    pg_catalog.set_config('lock_timeout', %s, true), pg_catalog.set_config('jit', 'off', true)
"""


@contextmanager
def read_only(alias: str) -> Iterator[None]:
    """One snapshot, so that the numbers fit together. Inside a caller's transaction it is the caller's."""
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
    """Ask in the transaction that there is, if any."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall())


def is_lost(alias: str) -> bool:
    """Whether there is no connection any more: then nothing was read."""
    connection = connections[alias].connection
    return connection is None or bool(connection.closed)


@contextmanager
def briefly(alias: str, timeout: str) -> Iterator[None]:
    """Read for at most so long a statement. A caller's transaction gets its own settings back."""
    connection = connections[alias]
    refuse_other_vendors(connection)
    is_nested = connection.in_atomic_block
    with transaction.atomic(using=alias):
        with connection.cursor() as cursor:
            cursor.execute(_SETTINGS, ["on", timeout, LOCK_TIMEOUT])
        yield
        if is_nested:  # settings outlive a savepoint that is released, and not one that is rolled back
            transaction.set_rollback(True, using=alias)
