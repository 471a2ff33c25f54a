"""The SQL that splits the table of jobs into eras, and joins it again."""

from __future__ import annotations

from typing import Any

from pulse_django.migrations._rights import grant_like, same_owner

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LOCK = "SET LOCAL lock_timeout = '500ms'; LOCK TABLE pulse_django_job IN ACCESS EXCLUSIVE MODE"

# Jobs that were enqueued since the keys were copied. A transaction that was open all the time may add one more, which
# the next migration copies. What the job's row says is the truth until the index on it is dropped.
COPY_NEW_KEYS = """
INSERT INTO pulse_django_key (task, key, job_id)
SELECT task, idempotency_key, id
FROM pulse_django_job
WHERE idempotency_key IS NOT NULL AND id > (SELECT COALESCE(pg_catalog.max(id), 0) - 20000 FROM pulse_django_job)
ON CONFLICT (task, key) DO UPDATE SET job_id = EXCLUDED.job_id WHERE pulse_django_key.job_id <> EXCLUDED.job_id
"""

# Partitions have no identity columns before PostgreSQL 17.
SPLIT = """
DROP INDEX pulse_job_one_per_key;
CREATE SEQUENCE pulse_django_job_ids AS bigint;
SELECT pg_catalog.setval(
    'pulse_django_job_ids'::regclass,
    pg_catalog.nextval(pg_catalog.pg_get_serial_sequence('pulse_django_job', 'id')::regclass), false
);
ALTER TABLE pulse_django_job ALTER id DROP IDENTITY;
ALTER SEQUENCE pulse_django_job_ids RENAME TO pulse_django_job_id_seq;
ALTER TABLE pulse_django_job ALTER id SET DEFAULT pg_catalog.nextval('pulse_django_job_id_seq'::regclass);
ALTER TABLE pulse_django_job DROP CONSTRAINT pulse_django_job_pkey;
ALTER TABLE pulse_django_job ADD PRIMARY KEY USING INDEX pulse_django_job_hot_pkey;
ALTER TABLE pulse_django_job RENAME TO pulse_django_job_hot;
CREATE TABLE pulse_django_job (LIKE pulse_django_job_hot INCLUDING DEFAULTS, PRIMARY KEY (id, era))
    PARTITION BY LIST (era);
ALTER SEQUENCE pulse_django_job_id_seq OWNED BY pulse_django_job.id;
ALTER TABLE pulse_django_job ATTACH PARTITION pulse_django_job_hot FOR VALUES IN (0);
ALTER TABLE pulse_django_job_hot DROP CONSTRAINT pulse_job_is_hot
"""

# What may be done to the table may be done to the one that has its name now, and to its sequence.
GRANT_AGAIN = """
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT acl.privilege_type AS what, '' AS columns, acl.grantee, acl.is_grantable
        FROM pg_class AS c, pg_catalog.aclexplode(c.relacl) AS acl
        WHERE c.oid = 'pulse_django_job_hot'::regclass::oid AND acl.grantee <> c.relowner
        UNION ALL
        SELECT acl.privilege_type, pg_catalog.format('(%I)', a.attname), acl.grantee, acl.is_grantable
        FROM pg_attribute AS a, pg_catalog.aclexplode(a.attacl) AS acl
        WHERE a.attrelid = 'pulse_django_job_hot'::regclass::oid AND NOT a.attisdropped
    LOOP
        EXECUTE pg_catalog.format(
            'GRANT %s %s ON pulse_django_job TO %s %s', allowed.what, allowed.columns,
            CASE allowed.grantee WHEN 0 THEN 'PUBLIC' ELSE allowed.grantee::regrole::text END,
            CASE WHEN allowed.is_grantable THEN 'WITH GRANT OPTION' END
        );
        IF allowed.what = 'INSERT' THEN
            EXECUTE pg_catalog.format(
                'GRANT USAGE ON SEQUENCE pulse_django_job_id_seq TO %1$s;'
                'GRANT SELECT, INSERT, DELETE ON pulse_django_key TO %1$s',
                CASE allowed.grantee WHEN 0 THEN 'PUBLIC' ELSE allowed.grantee::regrole::text END
            );
        END IF;
    END LOOP;
END
$$
"""

# All days are partitions of pulse_django_job_over, so that a role that may add to history can add nothing else. Jobs
# whose day has no partition go to pulse_django_job_other: a condition is red while it holds any.
OVER = """
CREATE TABLE pulse_django_job_over PARTITION OF pulse_django_job DEFAULT PARTITION BY LIST (era);
CREATE TABLE pulse_django_job_other PARTITION OF pulse_django_job_over DEFAULT;
CREATE INDEX pulse_django_job_other_era ON pulse_django_job_other (era);
ALTER TABLE pulse_django_job_over ADD CONSTRAINT pulse_job_is_over CHECK (
    era <> 0 AND status::text IN ('COMPLETED', 'CANCELLED') AND finished_at IS NOT NULL
    AND locked_by IS NULL AND lease_until IS NULL AND token IS NULL AND deadline IS NULL
    AND refunds >= 0 AND attempts - refunds BETWEEN 0 AND max_attempts AND losses BETWEEN 0 AND attempts
    AND (result IS NULL OR status::text = 'COMPLETED' AND pg_catalog.octet_length(result::text) <= {most_bytes})
)
"""

# Functions with the rights of the tables' owner, so that a watchdog's role need not own them.
#
# The lock comes first: a statement that has planned with the old partitions would miss what is moved, or be refused the
# row that it inserts. What is in the partition for other days is moved, unless there are more than ``most`` jobs.
#
# The indexes of a day: for lists by their end, for a job's children, and for jobs that have rows in other tables.
_MAKE_DAY = """
CREATE OR REPLACE FUNCTION pulse_django_make_day(era int, most int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    home text := pg_catalog.quote_ident({schema});
    name text := 'pulse_django_job_' || era;
BEGIN
    IF era NOT BETWEEN 19000101 AND 99991231
        OR pg_catalog.to_char(pg_catalog.to_date(era::text, 'YYYYMMDD'), 'YYYYMMDD') <> era::text
    THEN
        RAISE EXCEPTION '% is not a day', era;
    END IF;
    IF pg_catalog.to_regclass(home || '.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format('LOCK TABLE ONLY %s.pulse_django_job_over IN ACCESS EXCLUSIVE MODE', home);
    IF pg_catalog.to_regclass(home || '.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format(
        'CREATE TABLE %1$s.%2$s (LIKE %1$s.pulse_django_job_over INCLUDING DEFAULTS INCLUDING CONSTRAINTS,'
        ' PRIMARY KEY (id, era));'
        'CREATE INDEX %2$s_end ON %1$s.%2$s (status, finished_at, id);'
        'CREATE INDEX %2$s_child ON %1$s.%2$s (parent_id) WHERE parent_id IS NOT NULL;'
        'CREATE INDEX %2$s_more ON %1$s.%2$s (id)'
        ' WHERE attempts > 1 OR completed_by IS NULL OR idempotency_key IS NOT NULL{more_indexes}', home, name
    );
    EXECUTE pg_catalog.format(
        'WITH moved AS ('
        ' DELETE FROM %1$s.pulse_django_job_other WHERE era = %3$s AND ('
        '  SELECT count(*) <= %4$s::bigint FROM ('
        '   SELECT FROM %1$s.pulse_django_job_other WHERE era = %3$s LIMIT %4$s::bigint + 1) AS stray)'
        ' RETURNING *) INSERT INTO %1$s.%2$s SELECT * FROM moved', home, name, era, most
    );
    EXECUTE pg_catalog.format(
        'ALTER TABLE %1$s.pulse_django_job_over ATTACH PARTITION %1$s.%2$s FOR VALUES IN (%3$s)', home, name, era
    );
    RETURN true;
EXCEPTION WHEN check_violation THEN  -- there are more
    RETURN false;
END
$function$
"""
MAKE_DAY = _MAKE_DAY.replace("{more_indexes}", "")
# Since tags: each day has their index, too.
_TAGS = (
    ";'\n        'CREATE INDEX %2$s_tags ON %1$s.%2$s USING gin (tags) WITH (fastupdate = off) WHERE tags IS NOT NULL"
)
MAKE_DAY_WITH_TAGS = _MAKE_DAY.replace("{more_indexes}", _TAGS)
# Since batches: of their members, too.
_BATCH = ";'\n        'CREATE INDEX %2$s_batch ON %1$s.%2$s (batch_id, id) WHERE batch_id IS NOT NULL"
MAKE_DAY_WITH_BATCHES = _MAKE_DAY.replace("{more_indexes}", _TAGS + _BATCH)
DROP_DAY = """
CREATE FUNCTION pulse_django_drop_day(era int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    home text := pg_catalog.quote_ident({schema});
    name text := 'pulse_django_job_' || era;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_inherits
        WHERE inhrelid = pg_catalog.to_regclass(home || '.' || name)::oid
            AND inhparent = pg_catalog.to_regclass(home || '.pulse_django_job_over')::oid
    ) THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format('DROP TABLE IF EXISTS %s.%s', home, name);
    RETURN true;
END
$function$
"""
OF_OWNER_ONLY = """
REVOKE EXECUTE ON FUNCTION pulse_django_make_day(int, int), pulse_django_drop_day(int) FROM PUBLIC
"""
SAME_OWNER = same_owner(
    "TABLE pulse_django_job",
    "TABLE pulse_django_job_over",
    "TABLE pulse_django_job_other",
    "TABLE pulse_django_key",
    "FUNCTION pulse_django_make_day(int, int)",
    "FUNCTION pulse_django_drop_day(int)",
)
MAKE_DAYS = """
SELECT pulse_django_make_day(pg_catalog.to_char(day, 'YYYYMMDD')::int, 0)
FROM pg_catalog.generate_series(0, 3) AS ahead
CROSS JOIN LATERAL (SELECT (statement_timestamp() AT TIME ZONE 'UTC')::date + ahead) AS next (day)
"""

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
GRANT_LEDGER = grant_like(
    "SELECT",
    "pulse_django_attempt",
    "SELECT ON pulse_django_ledger, pulse_django_job_over, pulse_django_job_other",
)

# No run is lost that only a job's row keeps.
JOIN = """
INSERT INTO pulse_django_attempt (job_id, number, token, worker, due_at, started_at, finished_at, outcome)
SELECT id, attempts, completed_token, completed_by, next_run_at, started_at, finished_at, 'SUCCEEDED'
FROM pulse_django_job
WHERE completed_by IS NOT NULL
ON CONFLICT (job_id, number) DO NOTHING;
DROP VIEW pulse_django_ledger;
DROP FUNCTION pulse_django_make_day(int, int);
DROP FUNCTION pulse_django_drop_day(int);
ALTER TABLE pulse_django_job DETACH PARTITION pulse_django_job_hot;
UPDATE pulse_django_job_hot SET completed_by = NULL, completed_token = NULL WHERE completed_by IS NOT NULL;
INSERT INTO pulse_django_job_hot ({columns}, era) SELECT {columns}, 0 FROM pulse_django_job;
ALTER SEQUENCE pulse_django_job_id_seq OWNED BY NONE;
DROP TABLE pulse_django_job;
ALTER SEQUENCE pulse_django_job_id_seq RENAME TO pulse_django_job_ids;
ALTER TABLE pulse_django_job_hot RENAME TO pulse_django_job;
ALTER TABLE pulse_django_job DROP CONSTRAINT pulse_django_job_hot_pkey;
ALTER TABLE pulse_django_job ADD PRIMARY KEY (id);
ALTER TABLE pulse_django_job ALTER id DROP DEFAULT;
ALTER TABLE pulse_django_job ALTER id ADD GENERATED BY DEFAULT AS IDENTITY;
SELECT pg_catalog.setval(
    pg_catalog.pg_get_serial_sequence('pulse_django_job', 'id')::regclass,
    pg_catalog.nextval('pulse_django_job_ids'::regclass), false
);
DROP SEQUENCE pulse_django_job_ids;
CREATE UNIQUE INDEX pulse_job_one_per_key ON pulse_django_job (task, idempotency_key)
    WHERE idempotency_key IS NOT NULL
"""

COLUMNS = """
SELECT pg_catalog.string_agg(pg_catalog.quote_ident(attname), ', ' ORDER BY attnum)
FROM pg_attribute
WHERE attrelid = 'pulse_django_job_hot'::regclass::oid AND attnum > 0 AND NOT attisdropped
    AND attname NOT IN ('era', 'completed_by', 'completed_token')
"""

MOST_BYTES = 32 * 1024 * 1024  # of a result as text, as in the hot partition


def split(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT pg_catalog.quote_literal(pg_catalog.current_schema())")
        [schema] = cursor.fetchone()
        for statements in (LOCK, COPY_NEW_KEYS, SPLIT, OVER.format(most_bytes=MOST_BYTES), GRANT_AGAIN):
            cursor.execute(statements)
        for function in (MAKE_DAY, DROP_DAY):
            cursor.execute(function.replace("{schema}", schema))
        for statements in (OF_OWNER_ONLY, SAME_OWNER, MAKE_DAYS, LEDGER, GRANT_LEDGER):
            cursor.execute(statements)


def index_tags_of_days(apps: Any, schema_editor: Any) -> None:
    """Let each day that is made from now on have an index of tags. The function keeps its owner and its rights."""
    _replace_make_day(schema_editor, MAKE_DAY_WITH_TAGS)


def index_no_tags_of_days(apps: Any, schema_editor: Any) -> None:
    _replace_make_day(schema_editor, MAKE_DAY)


def index_batches_of_days(apps: Any, schema_editor: Any) -> None:
    """Let each day that is made from now on have an index of the members of batches."""
    _replace_make_day(schema_editor, MAKE_DAY_WITH_BATCHES)


def index_no_batches_of_days(apps: Any, schema_editor: Any) -> None:
    _replace_make_day(schema_editor, MAKE_DAY_WITH_TAGS)


def _replace_make_day(schema_editor: Any, function: str) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT pg_catalog.quote_literal(pg_catalog.current_schema())")
        [schema] = cursor.fetchone()
        cursor.execute(function.replace("{schema}", schema))


def join(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(LOCK)
        cursor.execute(COLUMNS)
        [columns] = cursor.fetchone()
        cursor.execute(JOIN.format(columns=columns))
