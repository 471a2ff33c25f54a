"""Differences for tables in the layout for Citus, which keeps a schema on one of its nodes (docs/adr/0086).

Each process checks the layout of a database once, before the first statement for which it matters.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db.backends.base.base import BaseDatabaseWrapper

# Ended jobs are inserted into HISTORY. Citus distributes only one level of partitions, so there it is ALL_JOBS.
HISTORY, ALL_JOBS = "pulse_django_job_over", "pulse_django_job"

# Without tables there is no row, and the layout is not known yet. A dump of a schema of Citus may have been restored on
# a plain server.
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
    """Return whether the tables of this database can be on a node of Citus."""
    return all(_layout(connection))


def naming_history(connection: BaseDatabaseWrapper, sql: str) -> str:
    """Return the statement with the name of this database's history table."""
    if HISTORY not in sql or not _layout(connection).has_one_level:
        return sql
    return sql.replace(HISTORY, ALL_JOBS)


def _layout(connection: BaseDatabaseWrapper) -> _Layout:
    found = _found.get(connection.alias)
    if found is None and connection.vendor != "postgresql":
        return _UNKNOWN  # a query for jobs raises the error
    if found is None:
        with connection.cursor() as cursor:
            cursor.execute(_LAYOUT)
            row = cursor.fetchone()
        if row is None:
            return _UNKNOWN
        found = _found[connection.alias] = _Layout._make(row)
    return found


def forget() -> None:
    """Forget the layouts, for tests that migrate."""
    _found.clear()
