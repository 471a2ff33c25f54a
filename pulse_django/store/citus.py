"""What differs where the tables are laid out for Citus, which keeps a schema on one of its nodes (docs/adr/0067).

A database is asked once in each process, by the first statement for which it matters.
"""

from __future__ import annotations

from django.db.backends.base.base import BaseDatabaseWrapper

# History is inserted into the first. Citus distributes partitions of one level, so there it is the second.
HISTORY, ALL_JOBS = "pulse_django_job_over", "pulse_django_job"

# No row before the migration that sets history apart: then there is nothing to know yet.
_IS_FOR_CITUS = """
SELECT pg_catalog.to_regclass('pulse_django_job_over') IS NULL
WHERE pg_catalog.to_regclass('pulse_django_job_other') IS NOT NULL
"""

_found: dict[str, bool] = {}  # by alias


def is_for_citus(connection: BaseDatabaseWrapper) -> bool:
    """Whether the tables of this database are those that Citus can distribute."""
    found = _found.get(connection.alias)
    if found is None:
        with connection.cursor() as cursor:
            cursor.execute(_IS_FOR_CITUS)
            row = cursor.fetchone()
        if row is None:
            return False
        found = _found[connection.alias] = row[0]
    return found


def naming_history(connection: BaseDatabaseWrapper, sql: str) -> str:
    """Return the statement with the name that the table of history has in this database."""
    if HISTORY not in sql or not is_for_citus(connection):
        return sql
    return sql.replace(HISTORY, ALL_JOBS)


def forget() -> None:
    """Ask again: for tests that migrate."""
    _found.clear()
