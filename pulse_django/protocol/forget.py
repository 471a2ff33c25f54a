"""Delete what is left of jobs and batches that are gone: needs, steps, batches and events. A part of ``prune``.

Jobs are dropped with their day, and a day does not know what else there is of its jobs. So the other tables are walked
through, some rows a minute, and what belongs to no job is deleted.
"""

from __future__ import annotations

from datetime import timedelta

from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import run_alone

from .events import forget_events

WALKED_AT_ONCE = 5_000
BATCHES_LIMIT = 1_000

_ORPHANS = """
WITH walked AS MATERIALIZED (
    SELECT DISTINCT job_id
    FROM (SELECT job_id FROM {table} WHERE job_id > %s ORDER BY job_id LIMIT %s) AS part
),
gone AS MATERIALIZED (
    SELECT job_id FROM walked WHERE NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = walked.job_id)
),
deleted AS (
    DELETE FROM {table} WHERE job_id = ANY (ARRAY(SELECT job_id FROM gone))
)
SELECT pg_catalog.max(job_id) FROM walked
"""
_TABLES = ("pulse_django_dependency", "pulse_django_step")

# One that has parts is deleted after them.
_BATCHES = """
WITH old AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch AS batch
    WHERE closed_at < statement_timestamp() - %s::float8 * interval '1 second' AND closed_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE batch_id = batch.id AND batch_id IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM pulse_django_batch AS child WHERE child.parent_id = batch.id)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_dependency
            WHERE needs_batch = batch.id AND needs_batch IS NOT NULL AND met_at IS NULL
        )
    ORDER BY closed_at
    LIMIT %s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse_django_batch AS batch USING old WHERE batch.id = old.id RETURNING batch.id
"""

# Members of open batches keep their results: jobs that wait may read them. They move to the partition of today.
_CARRY = """
WITH kept AS MATERIALIZED (
    SELECT job.id
    FROM pulse_django_batch AS batch
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulse_django_job
        WHERE era = %(era)s AND batch_id = batch.id AND batch_id IS NOT NULL
        ORDER BY id
        LIMIT %(limit)s
    ) AS job
    WHERE batch.closed_at IS NULL
    LIMIT %(limit)s
),
carried AS (
    DELETE FROM pulse_django_job WHERE era = %(era)s AND id = ANY (ARRAY(SELECT id FROM kept)) RETURNING *
),
moved AS (
    INSERT INTO pulse_django_job_over ({columns})
    SELECT {values} FROM carried
)
SELECT id FROM carried
"""

_walked_until: dict[tuple[str, str], int] = {}  # by alias and table: the last job that was looked at


def forget_orphans(jobs: JobReader) -> None:
    """Look at the needs and steps of the next jobs, and delete those of jobs that are gone."""
    for table in _TABLES:
        place = jobs.write_alias, table
        params = [_walked_until.get(place, 0), WALKED_AT_ONCE]
        [(last,)] = run_alone(jobs.write_alias, _ORPHANS.format(table=table), params)
        _walked_until[place] = last or 0


def forget_batches(jobs: JobReader, *, older_than: timedelta, limit: int = BATCHES_LIMIT) -> int:
    """Delete batches that closed so long ago and have no jobs any more, and old events. Return how many batches."""
    forget_events(jobs, older_than=older_than.total_seconds())
    return len(run_alone(jobs.write_alias, _BATCHES, [older_than.total_seconds(), limit]))


def carry_open_batches(jobs: JobReader, era: int, columns: list[str], *, limit: int) -> int:
    """Move members of open batches out of a day that is to be dropped. Return how many."""
    values = {column: column for column in columns} | {
        "era": "(SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)"
    }
    sql = _CARRY.format(columns=", ".join(values), values=", ".join(values.values()))
    return len(run_alone(jobs.write_alias, sql, {"era": era, "limit": limit}))
