"""Whether anything has changed, from counts that the server keeps anyway: no table is read."""

from __future__ import annotations

from django.db import connections

from .citus import is_for_citus

# The longest that a change can stay unseen: the server counts what a connection did when it is idle, or once a minute.
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


def changes_in(alias: str) -> str:
    """Return a text that is another one after a row was written. Empty: it cannot be told.

    On Citus the tables are on another server than the counts.
    """
    if is_for_citus(connections[alias]):
        return ""
    with connections[alias].cursor() as cursor:
        cursor.execute(_CHANGES)
        row = cursor.fetchone()
    return row[0] if row else ""
