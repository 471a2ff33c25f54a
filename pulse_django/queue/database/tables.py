"""Check that the tables exist and are as new as this code, before a less clear error occurs."""

from __future__ import annotations

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, Error, connections
from django.db.models import Model

from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.queue.words.states import HOT_PARTITION

from .database_errors import sqlstate_of
from .dialects import Statements, statements_for
from .read_only import rows
from .transactions import refuse_other_vendors

_UNDEFINED = ("42P01", "42703")  # undefined_table, undefined_column

# Every role can read the catalogue, whatever its rights on the tables.
COLUMNS = """
SELECT c.relname, a.attname
FROM pg_class AS c
JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relname = ANY (%s) AND c.relkind IN ('r', 'p') AND pg_catalog.pg_table_is_visible(c.oid)
"""


def require_tables(alias: str) -> None:
    """Raise ImproperlyConfigured with instructions if the tables cannot store jobs."""
    if problem := problem_with_tables(alias):
        raise ImproperlyConfigured(problem)


def problem_with_tables(alias: str) -> str:
    """Return what is wrong with the tables and what to do. Empty: nothing is wrong."""
    refuse_other_vendors(connections[alias])
    models = models_with_tables()
    existing = set(rows(alias, COLUMNS, [[model._meta.db_table for model in models]]))
    run = _how_to_migrate(alias)
    if not existing:
        return f"The tables of Pulse are missing in database {alias!r}. {run}"
    for model in models:
        table = model._meta.db_table
        columns = [field.column for field in model._meta.concrete_fields]
        missing = [f"{table} has no column {column}" for column in columns if (table, column) not in existing]
        if not any(name == table for name, _ in existing):
            missing = [f"table {table} is missing"]
        if missing:
            return f"The tables of Pulse in database {alias!r} are older than this code: {missing[0]}. {run}"
    return ""


def _how_to_migrate(alias: str) -> str:
    return f"Run: python manage.py migrate{'' if alias == DEFAULT_DB_ALIAS else f' --database {alias}'}"


def explained(error: Exception, alias: str) -> str:
    """Return one line that explains an error. If a table is missing, usually ``migrate`` was not run."""
    return _problem_behind(error, alias) or error_in_one_line(error)


def explain_missing_tables(error: Error, alias: str) -> None:
    """Raise ImproperlyConfigured if a statement failed because a table or a column is missing."""
    if problem := _problem_behind(error, alias):
        raise ImproperlyConfigured(problem) from error


def _problem_behind(error: Exception, alias: str) -> str:
    if not isinstance(error, Error) or sqlstate_of(error) not in _UNDEFINED:
        return ""
    try:
        return problem_with_tables(alias)
    except Error:  # in a transaction that has failed
        if "pulse_django_" not in str(error):
            return ""
        return (
            f"The tables of Pulse in database {alias!r} are missing or older than this code. {_how_to_migrate(alias)}"
        )


def indexed_table(model: type[Model]) -> str:
    """Return the table with the indexes and constraints of a model: for jobs, the hot partition."""
    table = str(model._meta.db_table)
    return HOT_PARTITION if table == "pulse_django_job" else table


def models_with_tables() -> list[type[Model]]:
    models = apps.get_app_config("pulse_django").get_models()
    return [model for model in models if not model._meta.proxy and model._meta.managed]


# Detects changes from the server's statistics, without reading a table.

# The longest time that a change can go unnoticed: the server counts the writes of a connection when it is idle, or once
# a minute.
STALE_FOR = 30  # seconds

_CHANGES = f"""
SELECT pg_catalog.concat_ws(
    ' ',
    pg_catalog.floor(EXTRACT(epoch FROM statement_timestamp()) / {STALE_FOR}::numeric),
    pg_catalog.sum(
        pg_catalog.pg_stat_get_tuples_inserted(oid) + pg_catalog.pg_stat_get_tuples_updated(oid)
        + pg_catalog.pg_stat_get_tuples_deleted(oid)
    )
)
FROM pg_class
WHERE relkind = 'r' AND pg_catalog.starts_with(relname::text, 'pulse_django_')
    AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'pulse_django_job'::regclass::oid)
HAVING pg_catalog.current_setting('track_counts') = 'on'
"""  # noqa: S608 - made of constants


class Counting(Statements):
    """The query that detects writes."""

    def changes(self) -> str:
        return next((changes for (changes,) in rows(self.alias, _CHANGES)), "")


def changes_in(alias: str) -> str:
    """Return a text that changes after a row was written. Empty: changes cannot be detected."""
    return statements_for(Counting, alias).changes()
