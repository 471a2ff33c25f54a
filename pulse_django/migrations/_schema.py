"""What the models do not say: the partitions of jobs, the ledger, the sequence of tokens, storage and functions."""

from __future__ import annotations

from typing import Any

from pulse_django.queue.database import rules as job_rules

from . import _days
from ._enqueue import DROP, FUNCTION
from ._rights import grant_like

# One token per claim of any job. CACHE 1 (the default) is part of the contract: a cached range would be handed out
# late, and a later claim could get a smaller token.
# It may be left over: tools for tests drop the tables of models, and nothing else.
TOKENS = "CREATE SEQUENCE IF NOT EXISTS pulse_django_token AS bigint"

# fillfactor: room in each page, so that heartbeats update in place (docs/adr/0004 has the measurements).
# autovacuum: a queue's table is small and dies fast. Waiting for a fifth of it, as the default does, lets dead rows
# pile up in front of every claim; 5,000 dead rows are a fraction of a second's work.
# Each claim of a limiter with a rate updates a row of pulse_django_bucket; rows of pulse_django_unresolved live for
# milliseconds.
STORAGE = """
ALTER TABLE pulse_django_job SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000
);
ALTER TABLE pulse_django_bucket SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
);
ALTER TABLE pulse_django_unresolved SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE pulse_django_batch SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02)
"""

# Django's table of jobs, with its indexes and constraints, becomes the partition of all jobs that are not over.
# Partitions have no identity columns before PostgreSQL 17.
SPLIT = """
ALTER TABLE pulse_django_job ALTER id DROP IDENTITY;
CREATE SEQUENCE pulse_django_job_id_seq AS bigint;
ALTER TABLE pulse_django_job ALTER id SET DEFAULT pg_catalog.nextval('pulse_django_job_id_seq'::regclass);
ALTER TABLE pulse_django_job DROP CONSTRAINT pulse_django_job_pkey;
ALTER TABLE pulse_django_job RENAME TO pulse_django_job_hot;
ALTER TABLE pulse_django_job_hot ADD CONSTRAINT pulse_django_job_hot_pkey PRIMARY KEY (id, era);
CREATE TABLE pulse_django_job (LIKE pulse_django_job_hot INCLUDING DEFAULTS, PRIMARY KEY (id, era))
    PARTITION BY LIST (era);
ALTER SEQUENCE pulse_django_job_id_seq OWNED BY pulse_django_job.id;
ALTER TABLE pulse_django_job ATTACH PARTITION pulse_django_job_hot FOR VALUES IN (0)
"""

OF_OWNER_ONLY = """
REVOKE EXECUTE ON FUNCTION pulse_django_make_day(int, int), pulse_django_drop_day(int) FROM PUBLIC
"""
MAKE_DAYS = """
SELECT pulse_django_make_day(pg_catalog.to_char(day, 'YYYYMMDD')::int, 0)
FROM pg_catalog.generate_series(0, 3) AS ahead
CROSS JOIN LATERAL (SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date + ahead) AS next (day)
"""

# The runs that have a row, and those that only the row of the job keeps which they completed.
LEDGER = """
CREATE VIEW pulse_django_ledger AS
SELECT
    id, job_id, number, token, worker, due_at, started_at, finished_at, outcome, error_class, message, traceback,
    last_seen_at, late_outcome, late_at
FROM pulse_django_attempt
UNION ALL
SELECT
    -id, id, attempts, completed_token, completed_by, next_run_at, started_at, finished_at, 'SUCCEEDED'::varchar(16),
    ''::varchar(200), '', '', NULL, ''::varchar(16), NULL
FROM pulse_django_job
WHERE completed_by IS NOT NULL
"""

# A role that gets rights on new tables by default privileges can add jobs.
USE_OF_IDS = grant_like("INSERT", "pulse_django_job", "USAGE ON SEQUENCE pulse_django_job_id_seq")

# The tables themselves are dropped by Django, and partitions go with theirs.
UNDO = """
DROP VIEW pulse_django_ledger;
DROP FUNCTION pulse_django_make_day(int, int);
DROP FUNCTION pulse_django_drop_day(int);
DROP SEQUENCE pulse_django_token
"""


def complete(apps: Any, schema_editor: Any) -> None:
    """Add what the models do not say."""
    # Django builds indexes at the end of a migration, by the name that the table has here.
    for statement in schema_editor.deferred_sql:
        schema_editor.execute(statement, None)
    schema_editor.deferred_sql.clear()
    with schema_editor.connection.cursor() as cursor:
        found = _days.new_layout(cursor)
        for statements in (TOKENS, STORAGE, SPLIT, _days.created(found)):
            cursor.execute(statements)
        _days.put_make_day(cursor, found, _days.INDEXES)
        _days.put_drop_day(cursor, found)
        rules = job_rules.rules_of(apps.get_model("pulse_django", "Job"), schema_editor)
        cursor.execute(f"ALTER TABLE {job_rules.TABLE} {', '.join(f'DROP CONSTRAINT {name}' for name in rules)}")
        job_rules.put_rules(cursor, rules)
        cursor.execute(f"ALTER TABLE {job_rules.TABLE} VALIDATE CONSTRAINT {job_rules.NAME}")
        for statements in (OF_OWNER_ONLY, MAKE_DAYS, LEDGER, USE_OF_IDS):
            cursor.execute(statements)
        if found is _days.TWO_LEVELS:  # its statements are not those that Citus takes
            cursor.execute("SELECT pg_catalog.quote_ident(pg_catalog.current_schema())")
            cursor.execute(FUNCTION.replace("{home}", cursor.fetchone()[0]))


def undo(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(DROP)
        job_rules.drop_rules(cursor)
        cursor.execute(UNDO)
