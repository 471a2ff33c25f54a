"""The SQL of the partitions of days: which table they belong to, and the functions that make and drop one.

Plain PostgreSQL has two levels: the days are partitions of ``pulse_django_job_over``, which is one of
``pulse_django_job``. Citus distributes no such table, so there the days belong to ``pulse_django_job`` itself
(docs/adr/0086).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.core.exceptions import ImproperlyConfigured
from django.db import ProgrammingError

from pulse_django.queue.words.bounds import MAX_HOOK_TEXT, MAX_NOTE_TEXT

UNDEFINED_TABLE = "42P01"


class Layout(NamedTuple):
    create: str  # the partition for days that have none, and what it is a partition of
    parent: str  # of the days
    like: str  # has the columns and the check that a new day gets


MOST_BYTES = 32 * 1024 * 1024  # of a result as text, as in the hot partition
_INSTANTS = (
    "next_run_at, expires_at, lease_until, deadline, progress_at, cancel_requested_at, created_at, started_at, "
    "finished_at"
)

# Constant time, because each end of a job writes here: jsonb is measured as it is stored, which is uncompressed if a
# statement spells it.
_STORED = ("args", "kwargs", "progress", "meta", "tags", "search_terms")
_MOST_STORED = 40 * 1024 * 1024  # the hot partition allows 32 MB, and labels

_OTHER = f"""
CREATE TABLE pulse_django_job_other PARTITION OF {{parent}} DEFAULT;
CREATE INDEX pulse_django_job_other_era ON pulse_django_job_other (era);
ALTER TABLE {{like}} ADD CONSTRAINT pulse_job_is_over CHECK (
    era <> 0 AND status::text IN ('COMPLETED', 'CANCELLED') AND finished_at IS NOT NULL
    AND locked_by IS NULL AND lease_until IS NULL AND token IS NULL AND deadline IS NULL
    AND refunds >= 0 AND attempts - refunds BETWEEN 0 AND max_attempts AND losses BETWEEN 0 AND attempts
    AND (result IS NULL OR status::text = 'COMPLETED' AND pg_catalog.octet_length(result::text) <= {MOST_BYTES})
), ADD CONSTRAINT pulse_job_over_can_be_read CHECK (
    id > 0 AND LEAST({_INSTANTS}) >= '1899-01-01 00:00+00' AND GREATEST({_INSTANTS}) < '9002-01-01 00:00+00'
), ADD CONSTRAINT pulse_job_over_is_bounded CHECK (
    GREATEST({", ".join(f"pg_catalog.pg_column_size({name})" for name in _STORED)}) <= {_MOST_STORED}
    AND GREATEST(pg_catalog.octet_length(last_error), pg_catalog.octet_length(cancel_reason)) <= {MAX_NOTE_TEXT}
    AND (on_dead IS NULL OR pg_catalog.octet_length(on_dead::text) <= {MAX_HOOK_TEXT})
)
"""

# A role that may add to history may add nothing else, and to drop a day does not lock the table of all jobs. Jobs whose
# day has no partition go to pulse_django_job_other: a condition is red while it holds any.
TWO_LEVELS = Layout(
    create="CREATE TABLE pulse_django_job_over PARTITION OF pulse_django_job DEFAULT PARTITION BY LIST (era);" + _OTHER,
    parent="pulse_django_job_over",
    like="pulse_django_job_over",
)
ONE_LEVEL = Layout(create=_OTHER, parent="pulse_django_job", like="pulse_django_job_other")

# A schema is distributed after it is migrated, so the extension decides.
_IS_CITUS = "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus'::name)"
_HAS_TWO_LEVELS = "SELECT pg_catalog.to_regclass('pulse_django_job_over') IS NOT NULL"
_IS_DISTRIBUTED = "SELECT EXISTS (SELECT FROM pg_dist_schema WHERE schemaid = current_schema()::regnamespace)"

# Functions with the rights of the tables' owner, so that a watchdog's role need not own them.
#
# The lock comes first: a statement that has planned with the old partitions would miss what is moved, or be refused the
# row that it inserts. ONLY: a settle holds the lock of the hot partition, and wants this one.
#
# What is in the partition for other days is moved, unless there are more than ``most`` jobs.
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
    EXECUTE pg_catalog.format('LOCK TABLE ONLY %s.{parent} IN ACCESS EXCLUSIVE MODE', home);
    IF pg_catalog.to_regclass(home || '.' || name) IS NOT NULL THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format(
        'CREATE TABLE %1$s.%2$s (LIKE %1$s.{like} INCLUDING DEFAULTS INCLUDING CONSTRAINTS, PRIMARY KEY (id, era))',
        home, name
    );
{indexes}
    EXECUTE pg_catalog.format(
        'WITH moved AS ('
        ' DELETE FROM %1$s.pulse_django_job_other WHERE era = %3$s AND ('
        '  SELECT count(*) <= %4$s::bigint FROM ('
        '   SELECT FROM %1$s.pulse_django_job_other WHERE era = %3$s LIMIT %4$s::bigint + 1) AS stray)'
        ' RETURNING *) INSERT INTO %1$s.%2$s SELECT * FROM moved', home, name, era, most
    );
    EXECUTE pg_catalog.format(
        'ALTER TABLE %1$s.{parent} ATTACH PARTITION %1$s.%2$s FOR VALUES IN (%3$s)', home, name, era
    );
    RETURN true;
EXCEPTION WHEN check_violation THEN  -- there are more
    RETURN false;
END
$function$
"""
_INDEX = "    EXECUTE pg_catalog.format('CREATE INDEX %2$s_{suffix} ON %1$s.%2$s {what}', home, name);"
# For lists by their end, for a job's children, for jobs that have rows in other tables, and for searches.
INDEXES = {
    "end": "(status, finished_at, id)",
    "child": "(parent_id) WHERE parent_id IS NOT NULL",
    "more": "(id) WHERE attempts > 1 OR completed_by IS NULL OR idempotency_key IS NOT NULL",
    "tags": "USING gin (tags) WITH (fastupdate = off) WHERE tags IS NOT NULL",
    "batch": "(batch_id, id) WHERE batch_id IS NOT NULL",
    "search": "USING gin (search_terms) WITH (fastupdate = off) WHERE search_terms IS NOT NULL",
    "errors": "(id) WHERE last_error <> ''",
}

_DROP_DAY = """
CREATE OR REPLACE FUNCTION pulse_django_drop_day(era int) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $function$
DECLARE
    home text := pg_catalog.quote_ident({schema});
    name text := 'pulse_django_job_' || era;
BEGIN
    IF NOT EXISTS (
        SELECT FROM pg_catalog.pg_inherits
        WHERE inhrelid = pg_catalog.to_regclass(home || '.' || name)::oid
            AND inhparent = pg_catalog.to_regclass(home || '.{parent}')::oid
    ) THEN
        RETURN false;
    END IF;
    EXECUTE pg_catalog.format('DROP TABLE IF EXISTS %s.%s', home, name);
    RETURN true;
END
$function$
"""

# Days that were made before an index was added. Those made since have it.
_DAYS_WITHOUT = """
SELECT day.relname
FROM pg_inherits AS link
JOIN pg_class AS day ON day.oid = link.inhrelid
WHERE link.inhparent = '{parent}'::regclass::oid
    AND day.relname::text NOT IN ('pulse_django_job_hot', 'pulse_django_job_other')
    AND NOT EXISTS (
        SELECT FROM pg_index AS i
        JOIN pg_class AS index ON index.oid = i.indexrelid
        WHERE i.indrelid = day.oid AND i.indisvalid AND index.relname::text = day.relname::text || '_{suffix}'
    )
ORDER BY day.relname
"""


def new_layout(cursor: Any) -> Layout:
    """Return how history is to be partitioned in a database that has none yet."""
    return ONE_LEVEL if _asked(cursor, _IS_CITUS) else TWO_LEVELS


def created(found: Layout) -> str:
    """Return the SQL that makes the partition for days that have none."""
    return _filled(found.create, found)


def layout(cursor: Any) -> Layout:
    """Return how history is partitioned here."""
    return TWO_LEVELS if _asked(cursor, _HAS_TWO_LEVELS) else ONE_LEVEL


def put_make_day(cursor: Any, found: Layout, indexes: dict[str, str]) -> None:
    """Write the function that makes days with these indexes. If it is there, it keeps its owner and its rights."""
    # Within the quotes of the function's own text.
    quoted = {suffix: what.replace("'", "''") for suffix, what in indexes.items()}
    created = "\n".join(_INDEX.format(suffix=suffix, what=what) for suffix, what in quoted.items())
    cursor.execute(_in_schema(cursor, _filled(_MAKE_DAY, found).replace("{indexes}", created)))


def put_drop_day(cursor: Any, found: Layout) -> None:
    cursor.execute(_in_schema(cursor, _filled(_DROP_DAY, found)))


def index_days(cursor: Any, suffix: str) -> None:
    """Add an index to the days that there are. A watchdog may drop one meanwhile."""
    cursor.execute(_DAYS_WITHOUT.format(parent=layout(cursor).parent, suffix=suffix))
    for (day,) in cursor.fetchall():
        cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {day}_{suffix}")
        try:
            cursor.execute(f"CREATE INDEX CONCURRENTLY {day}_{suffix} ON {day} {INDEXES[suffix]}")
        except ProgrammingError as error:
            if getattr(error.__cause__, "sqlstate", "") != UNDEFINED_TABLE:
                raise


def refuse_distributed_schema(apps: Any, schema_editor: Any) -> None:
    """Raise where Citus has the schema already: the table of jobs is made with an identity, which it keeps."""
    with schema_editor.connection.cursor() as cursor:
        if _asked(cursor, _IS_CITUS) and _asked(cursor, _IS_DISTRIBUTED):
            raise ImproperlyConfigured(
                "The schema is distributed already, and Citus lets no migration change its identities. Let "
                "'pulse_shards add' make the tables: it distributes the schema afterwards."
            )


def _filled(text: str, found: Layout) -> str:
    return text.replace("{parent}", found.parent).replace("{like}", found.like)


def _in_schema(cursor: Any, text: str) -> str:
    cursor.execute("SELECT pg_catalog.quote_literal(pg_catalog.current_schema())")
    [schema] = cursor.fetchone()
    return text.replace("{schema}", schema)


def _asked(cursor: Any, question: str) -> bool:
    cursor.execute(question)
    [answer] = cursor.fetchone()
    return bool(answer)
