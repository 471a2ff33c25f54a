"""Conditions of the server: its clock, long transactions of other programs, and dead rows in the tables."""

from __future__ import annotations

from collections.abc import Sequence

from django.apps import apps
from django.db import connections

from pulse_django.pauses.statements import IS_OF_QUEUE

from .catalogue import Condition, Repair, Severity

TABLE_GROWS = "how-to/symptoms/table-grows.md"

LONG_TRANSACTIONS = """
SELECT which, form, who, state, transactions, pg_catalog.date_trunc('second', age) AS time
FROM (
    SELECT
        pg_catalog.concat('pid ', pid) AS which, '%%(who)s is %%(state)s, for %%(time)s' AS form,
        pg_catalog.concat_ws(' ', usename, NULLIF(application_name, '')) AS who, state,
        NULL::int AS transactions, statement_timestamp() - xact_start AS age
    FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
        AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)  -- they do not hold back one another
        AND (backend_xid IS NOT NULL OR backend_xmin IS NOT NULL OR state LIKE 'idle in transaction%%')
        AND xact_start < statement_timestamp() - %(long_transaction)s
    UNION ALL
    SELECT
        pg_catalog.concat('prepared ', gid), 'a prepared transaction of %%(who)s, for %%(time)s', owner::text, NULL,
        NULL, statement_timestamp() - prepared
    FROM pg_prepared_xacts
    WHERE database = current_database() AND prepared < statement_timestamp() - %(long_transaction)s
    UNION ALL
    SELECT
        pg_catalog.concat('replication slot ', slot_name), '%%(transactions)s transactions behind, and not in use',
        NULL, NULL, pg_catalog.age(xmin), NULL
    FROM pg_replication_slots
    WHERE NOT active AND xmin IS NOT NULL
) AS open
ORDER BY age DESC NULLS LAST
"""
BLOAT = """
SELECT
    relname, CASE
        WHEN last_autovacuum IS NULL AND last_vacuum IS NULL
        THEN '%%(dead)s dead rows beside %%(live)s live ones; last vacuum never'
        ELSE '%%(dead)s dead rows beside %%(live)s live ones; last vacuum %%(at)s'
    END,
    n_dead_tup AS dead, n_live_tup AS live, GREATEST(last_autovacuum, last_vacuum)::text AS at
FROM pg_stat_user_tables
WHERE relname::text LIKE 'pulse\\_django\\_%%' AND {whose}
    AND n_dead_tup > %(dead_rows)s AND n_dead_tup::float8 > %(dead_share)s::float8 * n_live_tup::float8
ORDER BY n_dead_tup DESC
"""
IS_VISIBLE = "pg_catalog.pg_table_is_visible(relid)"


def _vacuum(alias: str, tables: Sequence[str]) -> int:
    ours = {model._meta.db_table for model in apps.get_app_config("pulse_django").get_models()}
    connection = connections[alias]
    with connection.cursor() as cursor:
        for table in tables:
            if table in ours:
                cursor.execute(f"VACUUM (ANALYZE) {connection.ops.quote_name(table)}")
    return 0  # ends the repair: an old transaction still needs the rows that remain


CONDITIONS = (
    Condition(
        name="clock-stepped",
        severity=Severity.BROKEN,
        says="No recent row has a timestamp in the future.",
        means="The server's clock was set back. Backoffs, pauses and leases last longer by the same amount. Rates pause"
        " for their period at most.",
        to_do="Check NTP on the database host. --repair lease-too-long shortens leases; the rest resolves by itself.",
        sql=f"""
SELECT
    which, 'is %%(ahead)s ahead of the server''s clock', pg_catalog.date_trunc('milliseconds', ahead) AS ahead
FROM (
    SELECT pg_catalog.concat('worker ', name, ':', boot_id) AS which, last_beat_at - statement_timestamp() AS ahead
    FROM pulse_django_worker
    UNION ALL
    SELECT pg_catalog.concat('the creation of job ', id), created_at - statement_timestamp()
    FROM (
        (SELECT id, created_at FROM pulse_django_job_hot ORDER BY id DESC LIMIT %(sample)s)
        UNION ALL
        SELECT id, created_at FROM latest_completed
    ) AS latest
    UNION ALL
    SELECT pg_catalog.concat('the start of job ', id), started_at - statement_timestamp()
    FROM (
        SELECT id, started_at FROM pulse_django_job_hot WHERE status::text = 'RUNNING'
        ORDER BY id LIMIT %(sample)s
    ) AS running
    UNION ALL
    SELECT pg_catalog.concat('the end of attempt ', number, ' of job ', job_id), finished_at - statement_timestamp()
    FROM latest_attempts
    UNION ALL
    SELECT pg_catalog.concat('the end of job ', id), finished_at - statement_timestamp()
    FROM latest_completed
    UNION ALL
    SELECT pg_catalog.concat('the pause of queue ', queue), paused_at - statement_timestamp() FROM pulse_django_pause
    WHERE {IS_OF_QUEUE}
    UNION ALL
    SELECT
        pg_catalog.concat('a rate of limit ', pg_catalog.split_part(scope::text, ':', 1)),
        pg_catalog.max(at) - statement_timestamp()
    FROM pulse_django_bucket
    GROUP BY 1
) AS written
WHERE ahead > %(slack)s
ORDER BY ahead DESC
""",
    ),
    Condition(
        name="long-transaction",
        severity=Severity.RISK,
        says="No transaction of this database is older than a few minutes.",
        means="Vacuum cannot remove rows that died since the transaction began. This slows claims and heartbeats.",
        to_do="Find its owner. SELECT pg_terminate_backend(pid) ends a session, and ROLLBACK PREPARED ends a prepared "
        "transaction. Drop unused replication slots.",
        page=TABLE_GROWS,
        sql=LONG_TRANSACTIONS,
    ),
    Condition(
        name="table-bloat",
        severity=Severity.RISK,
        says="Autovacuum keeps up: dead rows are a small part of each table.",
        means="Claims and heartbeats read dead rows, and the table grows unnecessarily.",
        to_do="Look for a long transaction, which prevents vacuum from removing rows. Then check autovacuum.",
        page=TABLE_GROWS,
        sql=BLOAT.format(whose=IS_VISIBLE),
        repair=Repair(says="VACUUM (ANALYZE) the table; the queue keeps running.", act=_vacuum),
    ),
)
