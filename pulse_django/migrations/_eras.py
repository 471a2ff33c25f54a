"""The SQL that splits the table of jobs into eras, and joins it again."""

from __future__ import annotations

from typing import Any

from pulse_django.migrations import _days
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

OF_OWNER_ONLY = """
REVOKE EXECUTE ON FUNCTION pulse_django_make_day(int, int), pulse_django_drop_day(int) FROM PUBLIC
"""
_OWNED = (
    "TABLE pulse_django_job",
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
_READ = ("pulse_django_ledger", "pulse_django_job_other")

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
        found = _days.new_layout(cursor)
        over = () if found.parent == "pulse_django_job" else (found.parent,)
        history = found.create.format(parent=found.parent, like=found.like, most_bytes=MOST_BYTES)
        for statements in (LOCK, COPY_NEW_KEYS, SPLIT, history, GRANT_AGAIN):
            cursor.execute(statements)
        _days.put_make_day(cursor, found, _days.FROM_THE_FIRST)
        _days.put_drop_day(cursor, found)
        owned = same_owner(*_OWNED, *(f"TABLE {name}" for name in over))
        read = grant_like("SELECT", "pulse_django_attempt", f"SELECT ON {', '.join((*_READ, *over))}")
        for statements in (OF_OWNER_ONLY, owned, MAKE_DAYS, LEDGER, read):
            cursor.execute(statements)


def index_tags_of_days(apps: Any, schema_editor: Any) -> None:
    """Let each day that is made from now on have an index of tags."""
    _replace_make_day(schema_editor, _days.WITH_TAGS)


def index_no_tags_of_days(apps: Any, schema_editor: Any) -> None:
    _replace_make_day(schema_editor, _days.FROM_THE_FIRST)


def index_batches_of_days(apps: Any, schema_editor: Any) -> None:
    """Let each day that is made from now on have an index of the members of batches."""
    _replace_make_day(schema_editor, _days.WITH_BATCHES)


def index_no_batches_of_days(apps: Any, schema_editor: Any) -> None:
    _replace_make_day(schema_editor, _days.WITH_TAGS)


def index_searches_of_days(apps: Any, schema_editor: Any) -> None:
    """Let each day that is made from now on have the indexes of searches."""
    _replace_make_day(schema_editor, _days.WITH_SEARCH)


def index_no_searches_of_days(apps: Any, schema_editor: Any) -> None:
    _replace_make_day(schema_editor, _days.WITH_BATCHES)


def _replace_make_day(schema_editor: Any, indexes: dict[str, str]) -> None:
    with schema_editor.connection.cursor() as cursor:
        _days.put_make_day(cursor, _days.layout(cursor), indexes)


def join(apps: Any, schema_editor: Any) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(LOCK)
        cursor.execute(COLUMNS)
        [columns] = cursor.fetchone()
        cursor.execute(JOIN.format(columns=columns))
