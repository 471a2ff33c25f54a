"""The SQL that splits the table of jobs into eras, and joins it again."""

from __future__ import annotations

from typing import Any

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LOCK = "SET LOCAL lock_timeout = '500ms'; LOCK TABLE pulse_django_job IN ACCESS EXCLUSIVE MODE"

# Jobs that were enqueued since the keys were copied. A transaction that was open all the time may add one more, which
# the next migration copies.
COPY_NEW_KEYS = """
INSERT INTO pulse_django_key (task, key, job_id)
SELECT task, idempotency_key, id
FROM pulse_django_job
WHERE idempotency_key IS NOT NULL AND id > (SELECT COALESCE(pg_catalog.max(job_id), 0) - 100000 FROM pulse_django_key)
ON CONFLICT DO NOTHING
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
            'GRANT %s %s ON pulse_django_job TO %s', allowed.what, allowed.columns,
            CASE allowed.grantee WHEN 0 THEN 'PUBLIC' ELSE allowed.grantee::regrole::text END
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

# For jobs whose day has no partition: a condition is red while it holds any.
OTHER = """
CREATE TABLE pulse_django_job_other PARTITION OF pulse_django_job DEFAULT;
ALTER TABLE pulse_django_job_other ADD CONSTRAINT pulse_job_is_over CHECK (
    era <> 0 AND status::text IN ('COMPLETED', 'CANCELLED') AND finished_at IS NOT NULL
    AND locked_by IS NULL AND lease_until IS NULL AND token IS NULL AND deadline IS NULL
)
"""

# Functions with the rights of the tables' owner, so that a watchdog's role need not own them. {schema} is quoted.
#
# What is in the partition for other days is moved, unless there are more than ``most`` jobs: it is locked meanwhile.
# The indexes of a day: for lists by their end, for cancelled jobs, for a job's children, and for jobs that have rows in
# other tables. The CHECK keeps what the protocol does not know out of history.
MAKE_DAY = """
CREATE FUNCTION {schema}.pulse_django_make_day(era int, most int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    name text := 'pulse_django_job_' || era;
BEGIN
    IF era NOT BETWEEN 20000101 AND 99991231 THEN
        RAISE EXCEPTION '% is not a day', era;
    END IF;
    PERFORM pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtext('pulse_django_make_day'), 0);
    IF pg_catalog.to_regclass(pg_catalog.format('%s.%I', '{schema}', name)) IS NOT NULL THEN
        RETURN false;
    END IF;
    IF (
        SELECT pg_catalog.count(*) > most
        FROM (
            SELECT FROM {schema}.pulse_django_job_other AS other
            WHERE other.era = pulse_django_make_day.era
            LIMIT most::bigint + 1
        ) AS stray
    ) THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format($sql$
        CREATE TABLE {schema}.%1$I (LIKE {schema}.pulse_django_job INCLUDING DEFAULTS, PRIMARY KEY (id, era));
        CREATE INDEX %3$I ON {schema}.%1$I (finished_at);
        CREATE INDEX %4$I ON {schema}.%1$I (finished_at, id) WHERE status::text = 'CANCELLED';
        CREATE INDEX %5$I ON {schema}.%1$I (parent_id) WHERE parent_id IS NOT NULL;
        CREATE INDEX %6$I ON {schema}.%1$I (id)
            WHERE attempts > 1 OR completed_by IS NULL OR idempotency_key IS NOT NULL;
        ALTER TABLE {schema}.%1$I ADD CONSTRAINT pulse_job_is_over CHECK (
            era = %2$s AND status::text IN ('COMPLETED', 'CANCELLED') AND finished_at IS NOT NULL
            AND locked_by IS NULL AND lease_until IS NULL AND token IS NULL AND deadline IS NULL
            AND refunds >= 0 AND attempts - refunds BETWEEN 0 AND max_attempts AND losses BETWEEN 0 AND attempts
            AND (result IS NULL OR status::text = 'COMPLETED' AND pg_catalog.octet_length(result::text) <= {most_bytes})
        );
        LOCK TABLE {schema}.pulse_django_job_other IN ACCESS EXCLUSIVE MODE;
        WITH moved AS (DELETE FROM {schema}.pulse_django_job_other WHERE era = %2$s RETURNING *)
        INSERT INTO {schema}.%1$I SELECT * FROM moved;
        ALTER TABLE {schema}.pulse_django_job ATTACH PARTITION {schema}.%1$I FOR VALUES IN (%2$s)
    $sql$, name, era, name || '_end', name || '_cancelled', name || '_child', name || '_more');
    RETURN true;
END
$function$
"""
DROP_DAY = """
CREATE FUNCTION {schema}.pulse_django_drop_day(era int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    name text := 'pulse_django_job_' || era;
BEGIN
    IF era NOT BETWEEN 20000101 AND 99991231 THEN
        RAISE EXCEPTION '% is not a day', era;
    END IF;
    IF pg_catalog.to_regclass(pg_catalog.format('%s.%I', '{schema}', name)) IS NULL THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format('DROP TABLE {schema}.%I', name);
    RETURN true;
END
$function$
"""
OF_OWNER_ONLY = """
REVOKE EXECUTE ON FUNCTION pulse_django_make_day(int, int), pulse_django_drop_day(int) FROM PUBLIC
"""
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
GRANT_LEDGER = """
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT acl.grantee
        FROM pg_class AS c, pg_catalog.aclexplode(c.relacl) AS acl
        WHERE c.oid = 'pulse_django_attempt'::regclass::oid AND acl.grantee <> c.relowner
            AND acl.privilege_type = 'SELECT'
    LOOP
        EXECUTE pg_catalog.format(
            'GRANT SELECT ON pulse_django_ledger, pulse_django_job_other TO %s',
            CASE allowed.grantee WHEN 0 THEN 'PUBLIC' ELSE allowed.grantee::regrole::text END
        );
    END LOOP;
END
$$
"""

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
        cursor.execute("SELECT pg_catalog.quote_ident(pg_catalog.current_schema())")
        [schema] = cursor.fetchone()
        for statements in (LOCK, COPY_NEW_KEYS, SPLIT, GRANT_AGAIN, OTHER):
            cursor.execute(statements)
        for function in (MAKE_DAY, DROP_DAY):
            cursor.execute(function.replace("{schema}", schema).replace("{most_bytes}", str(MOST_BYTES)))
        for statements in (OF_OWNER_ONLY, MAKE_DAYS, LEDGER, GRANT_LEDGER):
            cursor.execute(statements)


def join(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(LOCK)
        cursor.execute(COLUMNS)
        [columns] = cursor.fetchone()
        cursor.execute(JOIN.format(columns=columns))
