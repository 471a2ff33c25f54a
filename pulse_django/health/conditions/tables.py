"""Advice about the tables: vacuum, HOT updates, indexes, size and retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import HOT_PARTITION

from .catalogue import Condition, Limits, Severity, Subject

MANY_ROWS = 100_000
LATE = timedelta(days=2)

_AUTOVACUUM = """
SELECT
    CASE WHEN is_off OR NOT is_set THEN 'pulse_django_job_hot' END,
    pg_catalog.concat(
        CASE WHEN is_off THEN 'it is off; ' WHEN NOT is_set THEN 'the settings of the table are missing; ' END,
        dead, ' dead rows beside ', live, ' live ones in pulse_django_job_hot, last vacuum ', COALESCE(latest, 'never')
    )
FROM (
    SELECT
        pg_catalog.current_setting('autovacuum') = 'off' OR options ~ 'autovacuum_enabled=(off|false)' AS is_off,
        options LIKE '%%autovacuum_vacuum_threshold=%%' AS is_set,
        s.n_dead_tup AS dead, s.n_live_tup AS live, GREATEST(s.last_autovacuum, s.last_vacuum)::text AS latest
    FROM pg_class AS c
    JOIN pg_stat_user_tables AS s ON s.relid = c.oid
    CROSS JOIN LATERAL (SELECT pg_catalog.concat(c.reloptions)) AS set (options)
    WHERE c.oid = 'pulse_django_job_hot'::regclass::oid
) AS found
"""
_NAPTIME = """
SELECT 'autovacuum', pg_catalog.concat('it checks each database every ', naptime)
FROM (SELECT pg_catalog.current_setting('autovacuum_naptime')) AS setting (naptime)
WHERE naptime::interval > interval '10 s'
"""
# Runs are counted as stored attempts plus completed jobs.
_COUNTED = """
    SELECT hot.n_tup_upd, hot.n_tup_hot_upd, hot.n_tup_ins + ledger.n_tup_ins
    FROM pg_stat_user_tables AS hot
    CROSS JOIN pg_stat_user_tables AS ledger
    WHERE hot.relid = 'pulse_django_job_hot'::regclass::oid AND ledger.relid = 'pulse_django_attempt'::regclass::oid
"""
# Updates that are not HOT, for each run: its claim, its settle, and sometimes a heartbeat whose page was full.
_UPDATES = f"""
SELECT
    CASE WHEN runs >= 1000 AND updates - hot > 3 * runs THEN 'pulse_django_job_hot' END,
    pg_catalog.concat(
        COALESCE(100 * hot / NULLIF(updates, 0), 0), '%% of ', updates, ' updates of pulse_django_job_hot were in place'
        ' (HOT); ', updates - hot, ' in ', runs, ' runs were not', CASE WHEN runs < 1000 THEN ', too few to judge' END
    )
FROM ({_COUNTED}) AS counted (updates, hot, runs)
"""
_SCANS = """
SELECT 'pulse_django_job_hot', pg_catalog.concat(
    'it was scanned sequentially ', seq_scan, ' times, ', seq_tup_read / seq_scan, ' rows on average'
)
FROM pg_stat_user_tables
WHERE relid = 'pulse_django_job_hot'::regclass::oid AND seq_scan > 0 AND seq_tup_read > 10000 * seq_scan
"""
_INDEXES = """
SELECT s.indexrelname, s.idx_scan, pg_catalog.pg_get_indexdef(s.indexrelid), x.indisunique, t.n_live_tup
FROM pg_stat_user_indexes AS s
JOIN pg_index AS x ON x.indexrelid = s.indexrelid
JOIN pg_stat_user_tables AS t ON t.relid = s.relid
WHERE s.relid = 'pulse_django_job_hot'::regclass::oid
ORDER BY s.indexrelname
"""
_OLDEST = """
SELECT statement_timestamp() - finished_at
FROM pulse_django_job
WHERE status::text = %s
ORDER BY finished_at, id
LIMIT 1
"""
_SIZE = """
SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(relid))::bigint
    + pg_catalog.pg_total_relation_size('pulse_django_attempt')
FROM pg_catalog.pg_partition_tree('pulse_django_job'::regclass)
"""


def _indexes(alias: str, _: Limits) -> Iterator[Subject]:
    ours = {one.name for one in (*Job._meta.indexes, *Job._meta.constraints)} | {f"{HOT_PARTITION}_pkey"}
    unused = []
    for name, used, definition, is_unique, live in rows(alias, _INDEXES):
        if name not in ours:
            beaten = any(column in definition for column in ("lease_until", "progress", "locked_by"))
            who = "every heartbeat updates it" if beaten else "every claim and every settle updates it"
            yield Subject(name, f"it does not belong to Pulse and was used {used} times; {who}")
        elif not used and not is_unique and live > MANY_ROWS:
            unused.append(name)
    if unused:
        yield Subject(None, f"not used since the statistics were reset: {', '.join(unused)}")


def _retention(alias: str, _: Limits) -> Iterator[Subject]:
    kept = conf.current().retention
    for status, keep in kept.items():
        for (age,) in rows(alias, _OLDEST, [status]):
            if keep and age > keep + LATE:
                ago, most = in_words(age.total_seconds()), in_words(keep.total_seconds())
                yield Subject(status, f"the oldest {status} job ended {ago} ago, but is kept for {most}")
    [(size,)] = rows(alias, _SIZE)
    for_ever = ", ".join(status for status, keep in kept.items() if not keep)
    yield Subject(None, f"jobs and ledger take {size / 1024**2:.0f} MiB; kept forever: {for_ever or 'none'}")


CONDITIONS = (
    Condition(
        name="autovacuum",
        severity=Severity.WARNING,
        says="It is set for a queue: it starts at 5,000 dead rows.",
        means="A queue table produces dead rows quickly, and every claim has to skip them.",
        to_do="Turn it on, and restore the migration's settings: fillfactor 50, a threshold of 5000, no scale factor.",
        sql=_AUTOVACUUM,
    ),
    Condition(
        name="autovacuum-naptime",
        severity=Severity.HINT,
        says="Autovacuum checks each database every ten seconds.",
        means="Dead rows remain until then, with any settings of the tables: 2,000 a second at 1,000 jobs/s.",
        to_do="ALTER SYSTEM SET autovacuum_naptime = '10s', and reload. Hosted databases have a parameter for it.",
        sql=_NAPTIME,
    ),
    Condition(
        name="updates",
        severity=Severity.WARNING,
        says="Claims and settles update indexes. Heartbeats do not.",
        means="A claim and a settle account for two. The rest are heartbeats that rewrite every index.",
        to_do="Drop indexes on lease_until, progress or locked_by; set fillfactor to 50 and rewrite the table.",
        sql=_UPDATES,
    ),
    Condition(
        name="indexes",
        severity=Severity.HINT,
        says="The table of jobs has only the indexes of Pulse. Each serves one query.",
        means="Each index of others makes claims or heartbeats slower.",
        to_do="Drop it, unless one of your queries needs it.",
        look=_indexes,
    ),
    Condition(
        name="scans",
        severity=Severity.HINT,
        says="Large tables are not scanned.",
        means="The cause is probably a query that is not of Pulse, such as a report or a count.",
        to_do="Find it in pg_stat_statements, and filter by status and finished_at, which are indexed.",
        sql=_SCANS,
    ),
    Condition(
        name="retention",
        severity=Severity.WARNING,
        says="Old jobs are deleted.",
        means="Watchdogs delete older jobs. No watchdog is running, or it cannot keep up.",
        to_do="Start a watchdog, or run manage.py pulse_prune --yes once.",
        look=_retention,
    ),
)
