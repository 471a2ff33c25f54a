"""What the server counts: statements and WAL, by anybody but ourselves."""

from __future__ import annotations

from dataclasses import dataclass

from django.db import Error

from benchmarks.scratch import execute

TRANSACTIONS, STATEMENTS = "pg_stat_database.xact_commit", "pg_stat_statements.calls"

_TRANSACTIONS = "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
# The words around a statement come in one message with it.
_STATEMENTS = """
SELECT COALESCE(sum(calls), 0)::bigint FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND query !~* '^\\s*(BEGIN|COMMIT|SET|RESET)\\M'
"""


@dataclass(frozen=True)
class Reading:
    """One look at the counters."""

    statements: int
    lsn: str


class Counters:
    """Looks, and what a look itself adds."""

    def __init__(self) -> None:
        self.source = STATEMENTS if _has_pg_stat_statements() else TRANSACTIONS
        self._can_flush = int(execute("SHOW server_version_num")[0][0]) >= 150000
        first, second = self.read(), self.read()
        self._own = second.statements - first.statements

    def read(self) -> Reading:
        if self.source == TRANSACTIONS and self._can_flush:
            execute("SELECT pg_stat_force_next_flush()")
        [[statements]] = execute(_STATEMENTS if self.source == STATEMENTS else _TRANSACTIONS)
        [[lsn]] = execute("SELECT pg_current_wal_lsn()::text")
        return Reading(int(statements), str(lsn))

    def statements_between(self, before: Reading, after: Reading) -> int:
        return max(0, after.statements - before.statements - self._own)

    def wal_bytes_between(self, before: Reading, after: Reading) -> int:
        return int(execute("SELECT pg_wal_lsn_diff(%s, %s)", [after.lsn, before.lsn])[0][0])


def _has_pg_stat_statements() -> bool:
    try:
        execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
        execute("SELECT count(*) FROM pg_stat_statements")
    except Error:  # not installed, not preloaded, or not ours to use
        return False
    return True
