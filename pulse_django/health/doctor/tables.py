"""Advice about the tables: vacuum, HOT updates, indexes, size and retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from django.apps import apps

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.states import HOT_PARTITION
from pulse_django.shards.citus_nodes import node_of

from .advice import Advice, Level, good, hint, rows, unknown, warning

# Updates that are not HOT, for each run: its claim, its settle, and sometimes a heartbeat whose page was full.
MOST_COLD_UPDATES = 3.0
FEW_RUNS = 1_000
LARGE = 5 * 1024**3  # bytes
MANY_ROWS = 100_000
LONG_SCAN = 10_000  # rows
LONGEST_NAPTIME = 10.0  # seconds

# Runs are counted as stored attempts plus completed jobs.
_STORAGE = """
SELECT
    pg_catalog.current_setting('autovacuum')::boolean, COALESCE(c.reloptions, '{}'), s.n_live_tup, s.n_dead_tup,
    s.n_tup_upd, s.n_tup_hot_upd, s.seq_scan, s.seq_tup_read,
    COALESCE(GREATEST(s.last_autovacuum, s.last_vacuum)::text, 'never'),
    s.n_tup_ins + (SELECT n_tup_ins FROM pg_stat_user_tables WHERE relid = 'pulse_django_attempt'::regclass::oid),
    (
        SELECT pg_catalog.sum(pg_catalog.pg_total_relation_size(relid))::bigint
        FROM pg_catalog.pg_partition_tree('pulse_django_job'::regclass)
    ),
    pg_catalog.pg_total_relation_size('pulse_django_attempt'),
    EXTRACT(epoch FROM pg_catalog.current_setting('autovacuum_naptime')::interval)::float8
FROM pg_class AS c
JOIN pg_stat_user_tables AS s ON s.relid = c.oid
WHERE c.oid = 'pulse_django_job_hot'::regclass::oid
"""
_INDEXES = """
SELECT s.indexrelname, s.idx_scan, pg_catalog.pg_get_indexdef(s.indexrelid), x.indisunique
FROM pg_stat_user_indexes AS s
JOIN pg_index AS x ON x.indexrelid = s.indexrelid
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


def on_the_tables(alias: str, settings: conf.PulseSettings) -> Iterator[Advice]:
    if node := node_of(alias):
        yield unknown(
            "tables",
            f"the tables are on {node}, whose vacuum, indexes and sizes are not checked",
            "The statistics of this server are those of empty tables.",
            "Read pg_stat_user_tables there. The conditions table-bloat and long-transaction do check the node.",
        )
        return
    [row] = rows(alias, _STORAGE)
    autovacuum, options, live, dead, updates, hot, scans, scanned, last, runs, size, ledger, naptime = row
    yield _of_autovacuum(autovacuum, options, live, dead, last)
    if naptime > LONGEST_NAPTIME:
        yield _of_naptime(naptime)
    yield _of_updates(updates, hot, runs)
    yield from _of_indexes(rows(alias, _INDEXES), scans, scanned, live)
    yield from _of_retention(alias, settings, size + ledger)


def _of_autovacuum(enabled: bool, options: list[str], live: int, dead: int, last: str) -> Advice:
    what = f"{dead} dead rows beside {live} live ones in pulse_django_job_hot, last vacuum {last}"
    disabled = not enabled or "autovacuum_enabled=off" in options or "autovacuum_enabled=false" in options
    if disabled or not any(option.startswith("autovacuum_vacuum_threshold") for option in options):
        return warning(
            "autovacuum",
            f"{'it is off' if disabled else 'the settings of the table are missing'}; {what}",
            "A queue table produces dead rows quickly, and every claim has to skip them.",
            "Turn it on, and restore the migration's settings: fillfactor 50, a threshold of 5000, no scale factor.",
        )
    return good("autovacuum", f"set for a queue; {what}", "It starts at 5,000 dead rows.")


def _of_naptime(naptime: float) -> Advice:
    return hint(
        "autovacuum_naptime",
        f"autovacuum checks each database every {in_words(naptime)}",
        "Dead rows remain until then, with any settings of the tables: 2,000 a second at 1,000 jobs/s.",
        "ALTER SYSTEM SET autovacuum_naptime = '10s', and reload. Hosted databases have a parameter for it.",
    )


def _of_updates(updates: int, hot: int, runs: int) -> Advice:
    share = f"{hot / updates:.0%} of {updates}" if updates else "none of 0"
    what = f"{share} updates of pulse_django_job_hot were in place (HOT)"
    if runs < FEW_RUNS:
        why = "Claims and settles update indexes, but heartbeats should not. There are too few runs to judge."
        return unknown("updates", what, why)
    cold = (updates - hot) / runs
    what = f"{what}; {cold:.1f} for each of {runs} runs were not"
    if cold > MOST_COLD_UPDATES:
        return warning(
            "updates",
            what,
            "A claim and a settle account for two. The rest are heartbeats that rewrite every index.",
            "Drop indexes on lease_until, progress or locked_by; set fillfactor to 50 and rewrite the table.",
        )
    return good("updates", what, "Heartbeats do not update indexes.")


def _of_indexes(indexes: list[tuple[Any, ...]], scans: int, scanned: int, live: int) -> Iterator[Advice]:
    ours = {one.name for one in (*Job._meta.indexes, *Job._meta.constraints)} | {f"{HOT_PARTITION}_pkey"}
    for name, used, definition, _ in indexes:
        if name in ours:
            continue
        beaten = any(column in definition for column in ("lease_until", "progress", "locked_by"))
        yield Advice(
            Level.WARNING if beaten else Level.HINT,
            "indexes",
            f"{name} does not belong to Pulse and was used {used} times",
            "Every heartbeat updates it." if beaten else "Every claim and every settle updates it.",
            "Drop it, unless one of your queries needs it.",
        )
    unused = [name for name, used, _, unique in indexes if name in ours and not used and not unique]
    if unused and live > MANY_ROWS:
        yield hint(
            "indexes",
            f"not used since the statistics were reset: {', '.join(unused)}",
            "Each serves one query, which may not have run yet. Without its index, the query scans the table.",
        )
    if scans and scanned / scans > LONG_SCAN:
        yield hint(
            "indexes",
            f"pulse_django_job_hot was scanned sequentially {scans} times, {scanned // scans} rows on average",
            "Pulse does not scan large tables. The cause is probably another query, such as a report or a count.",
            "Find it in pg_stat_statements, and filter by status and finished_at, which are indexed.",
        )


def _of_retention(alias: str, settings: conf.PulseSettings, size: int) -> Iterator[Advice]:
    kept = settings.retention
    label = apps.get_app_config("pulse_django").label
    human = f"{size / 1024**2:.0f} MiB"
    late = False
    for status, keep in kept.items():
        oldest: timedelta = next((age for (age,) in rows(alias, _OLDEST, [status])), timedelta())
        if keep and oldest > keep + timedelta(days=2):
            late = True
            yield warning(
                "retention",
                f"the oldest {status} job ended {in_words(oldest.total_seconds())} ago, but is kept for "
                f"{in_words(keep.total_seconds())}",
                "Watchdogs delete older jobs. No watchdog is running, or it cannot keep up.",
                f"Start a watchdog, or run manage.py pulse_prune --status {status} --yes once.",
            )
    for_ever = [status for status, keep in kept.items() if not keep]
    if size > LARGE and for_ever:
        yield hint(
            "retention",
            f"the tables of {label} take {human}; kept forever: {', '.join(for_ever)}",
            "Backups and vacuums take longer as the tables grow.",
            "Set KEEP_COMPLETED, KEEP_CANCELLED or KEEP_DEAD_LETTERS.",
        )
    elif not late:
        yield good("retention", f"jobs and ledger take {human}", "Old jobs are deleted.")
