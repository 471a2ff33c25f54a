"""Looking without touching: a transaction in which the server refuses every write, and gives up in time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connections, transaction

from pulse_django.store.transactions import refuse_other_vendors

# No look takes a tenth of it on a healthy server; on a sick one it must not add to the load for long.
TIMEOUT = "15s"


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
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            cursor.execute(f"SET LOCAL statement_timeout = '{TIMEOUT}'")
        yield
