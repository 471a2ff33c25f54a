"""What differs where the tables are laid out for Citus, which keeps a schema on one of its nodes (docs/adr/0067).

A database is asked once in each process, by the first statement for which it matters.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

# History is inserted into the first. Citus distributes partitions of one level, so there it is the second.
HISTORY, ALL_JOBS = "pulse_django_job_over", "pulse_django_job"

# No row without tables: then there is nothing to know yet. A dump of a schema of Citus
# may have been restored on a plain server.
_LAYOUT = """
SELECT
    pg_catalog.to_regclass('pulse_django_job_over') IS NULL,
    EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus'::name)
WHERE pg_catalog.to_regclass('pulse_django_job_other') IS NOT NULL
"""


class _Layout(NamedTuple):
    has_one_level: bool
    has_citus: bool


_UNKNOWN = _Layout(False, False)
_found: dict[str, _Layout] = {}  # by alias


def is_for_citus(connection: BaseDatabaseWrapper) -> bool:
    """Whether the tables of this database can be on a node of Citus."""
    return all(_layout(connection))


def naming_history(connection: BaseDatabaseWrapper, sql: str) -> str:
    """Return the statement with the name that the table of history has in this database."""
    if HISTORY not in sql or not _layout(connection).has_one_level:
        return sql
    return sql.replace(HISTORY, ALL_JOBS)


def _layout(connection: BaseDatabaseWrapper) -> _Layout:
    found = _found.get(connection.alias)
    if found is None and connection.vendor != "postgresql":
        return _UNKNOWN  # who asks it for jobs is told
    if found is None:
        with connection.cursor() as cursor:
            cursor.execute(_LAYOUT)
            row = cursor.fetchone()
        if row is None:
            return _UNKNOWN
        found = _found[connection.alias] = _Layout._make(row)
    return found


def forget() -> None:
    """Ask again: for tests that migrate."""
    _found.clear()
