"""What a measurement cost the server: statements, commits and WAL, of one peer's database."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.stores import Server

PG_STAT_STATEMENTS, SERVER_LOG, NOTHING = "pg_stat_statements", "the server's log", "nothing"
# A backend hands in what it counted when it ends, or after a second at most.
PAUSE_FOR_COUNTS = 1.3
# Words around statements. They are counted as commits, not as statements: some send them in one message with these.
AROUND = r"(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|RESET|START TRANSACTION)\M"
_LOGGED = re.compile(
    rb"LOG:  (?:statement|execute [^:]*): *(?!(?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE|SET|RESET|START T))", re.I
)
_CALLS = f"""
SELECT COALESCE(sum(calls), 0)::bigint FROM pg_stat_statements
WHERE dbid = (SELECT oid FROM pg_database WHERE datname = %s) AND query !~* '^\\s*{AROUND}'
"""
COMMITS = "SELECT xact_commit FROM pg_stat_database WHERE datname = %s"


@dataclass(frozen=True)
class Spent:
    commits: int
    wal_bytes: int


class ServerCounts:
    def __init__(self, server: Server, log: Path | None) -> None:
        self._server, self._log = server, log
        self.source = self._find_source()

    def _find_source(self) -> str:
        """Statements are counted by the extension if it is loaded, else as lines of the log if that is ours."""
        loaded = self._server.ask("SHOW shared_preload_libraries")
        if PG_STAT_STATEMENTS in str(loaded):
            self._server.ask("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            return PG_STAT_STATEMENTS
        return SERVER_LOG if self._log is not None and self._log.exists() else NOTHING

    def setting(self, name: str) -> str:
        return str(self._server.ask(f"SHOW {name}"))

    # Commits and WAL, over a whole measurement

    def read(self, database: str) -> tuple[int, str]:
        commits = self._server.ask(COMMITS, database)
        return int(commits or 0), str(self._server.ask("SELECT pg_current_wal_insert_lsn()::text"))

    def between(self, before: tuple[int, str], after: tuple[int, str]) -> Spent:
        size: Any = self._server.ask("SELECT pg_wal_lsn_diff(%s, %s)", after[1], before[1])
        return Spent(after[0] - before[0], int(size))

    # Statements, between two instants

    def watch(self, database: str) -> None:
        """Log every statement of this database's later sessions, if that is how they are counted."""
        if self.source == SERVER_LOG:
            self._server.configure(database, "log_statement", "all")
            self._server.configure(database, "log_parameter_max_length", "0")
            self._server.configure(database, "log_min_duration_statement", "-1")

    def mark(self, database: str) -> int:
        if self.source == PG_STAT_STATEMENTS:
            return int(self._server.ask(_CALLS, database))
        return self._log.stat().st_size if self._log is not None else 0

    def statements_since(self, mark: int, database: str) -> int:
        """Return how many there were. Of the log, only the watched database's sessions write to it meanwhile."""
        if self.source == PG_STAT_STATEMENTS:
            return int(self._server.ask(_CALLS, database)) - mark
        assert self._log is not None
        with self._log.open("rb") as file:
            file.seek(mark)
            return len(_LOGGED.findall(file.read()))
