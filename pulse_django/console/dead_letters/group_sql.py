"""The SQL of dead letters grouped by error. What each statement may read is bounded.

Three habits keep PostgreSQL on ``pulse_job_error_group``, whatever its statistics say:

- A group is in the order of the instant in UTC, which is a key of that index alone. By the column, the index on
  (finished_at, id) could give the order: all dead letters read to find one of a rare group. Of what is ordered by the
  fingerprint, PostgreSQL computes it for each row, which takes longer than all else.
- A limit of many is a sub-select, whose value the planner does not know: told of a limit that is larger than its
  estimate of the group, it may read and sort the whole of it.
- The status is spelled out, because a parameter proves no condition of an index.
"""

from __future__ import annotations

from pulse_django.store.loose_scan import loose_scan
from pulse_django.store.sql_functions import Fingerprint, InUtc

_PRINT = Fingerprint.template % {"expressions": "last_error"}
_AT = InUtc.template % {"expressions": "finished_at"}

# Downwards, so that each probe finds the latest dead letter of its group as well.
WALKED = loose_scan(
    "walked",
    f"{_PRINT} AS fingerprint, finished_at, id",
    where="status::text = 'DEAD_LETTERED'",
    order=f"{_PRINT} DESC, {_AT} DESC, id DESC",
    following=(f"{_PRINT} < walked.fingerprint",),
    most="%(most_groups)s + 1",
)

# Of more groups than are looked for, those of the latest dead letters are known as well: what breaks now is seen.
_KNOWN = f"""{WALKED},
latest AS (
    SELECT {_PRINT} AS fingerprint, finished_at, id
    FROM (
        SELECT last_error, finished_at, id
        FROM pulse_django_job_hot
        WHERE status::text = 'DEAD_LETTERED'
        ORDER BY finished_at DESC, id DESC
        LIMIT %(most_groups)s
    ) AS one
    WHERE (SELECT count(*) FROM walked) > %(most_groups)s
),
known AS (
    SELECT fingerprint, pg_catalog.max(finished_at) AS finished_at, count(*) OVER () AS groups
    FROM (SELECT fingerprint, finished_at FROM walked UNION ALL SELECT fingerprint, finished_at FROM latest) AS one
    GROUP BY fingerprint
)"""  # noqa: S608 - made of constants

_SHOWN = f"""{_KNOWN},
shown AS (
    SELECT
        fingerprint, groups, (SELECT count(*) FROM walked) > %(most_groups)s AS is_partial,
        row_number() OVER (ORDER BY finished_at DESC, fingerprint) AS place
    FROM (
        SELECT fingerprint, groups, finished_at
        FROM known
        ORDER BY finished_at DESC, fingerprint
        LIMIT %(page_size)s OFFSET %(offset)s
    ) AS page
)"""  # noqa: S608 - made of constants

# Over several shards, the groups of a page are chosen among those that each shard knows, and then looked at in each.
_THESE = """
WITH RECURSIVE shown AS (
    SELECT fingerprint, 1 AS groups, false AS is_partial, place
    FROM pg_catalog.unnest(%(fingerprints)s::text[]) WITH ORDINALITY AS one (fingerprint, place)
)"""

_ONE = """
WITH RECURSIVE shown AS (
    SELECT %(fingerprint)s::text AS fingerprint, 1 AS groups, false AS is_partial, 1::bigint AS place
)"""

_IN_GROUP = f"""
        FROM pulse_django_job_hot
        WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} = shown.fingerprint"""

# Microseconds, which say which instant they are: without time zones Django would be given one that does not.
_PLACED = "(EXTRACT(epoch FROM {}finished_at) * 1000000.0)::bigint"

# How many dead letters each group has, and how many died in each of the last hours. Of a page, those at the top are
# counted first, and what they leave of ``most_counted`` is for the others; ``least_counted`` is for each.
_COUNTED = f""",
counted AS (
    SELECT
        0::bigint AS place, 0::bigint AS letters, NULL::json AS hours, 0::bigint AS most,
        %(most_counted)s::bigint AS rest
    UNION ALL
    SELECT shown.place, one.letters, one.hours, allowed.most, GREATEST(0, counted.rest - one.letters)
    FROM counted
    JOIN shown ON shown.place = counted.place + 1
    CROSS JOIN LATERAL (SELECT GREATEST(counted.rest, %(least_counted)s::bigint)) AS allowed (most)
    CROSS JOIN LATERAL (
        SELECT
            COALESCE(pg_catalog.sum(hourly.letters), 0)::bigint AS letters,
            pg_catalog.json_object_agg(hourly.hour, hourly.letters) AS hours
        FROM (
            SELECT
                LEAST(pg_catalog.floor(
                    pg_catalog.date_part('epoch', statement_timestamp() - dead.finished_at) / 3600.0::float8
                ), %(hours)s::float8)::int AS hour,
                count(*) AS letters
            FROM (
                SELECT finished_at {_IN_GROUP}
                ORDER BY {_AT} DESC, id DESC
                LIMIT (SELECT allowed.most + 1)
            ) AS dead
            GROUP BY 1
        ) AS hourly
    ) AS one
)"""  # noqa: S608 - made of constants

_FACTS = f"""{_COUNTED}
SELECT
    shown.groups, shown.is_partial, statement_timestamp(), shown.fingerprint, counted.letters, counted.most,
    counted.hours::text, several.tasks, earliest.finished_at, earliest.id, latest.finished_at,
    {_PLACED.format("latest.")}, latest.id, latest.sample
FROM shown
JOIN counted ON counted.place = shown.place
CROSS JOIN LATERAL (
    SELECT finished_at, id {_IN_GROUP}
    ORDER BY {_AT}, id
    LIMIT 1
) AS earliest
CROSS JOIN LATERAL (
    SELECT finished_at, id, pg_catalog.left(last_error, %(sample)s) AS sample {_IN_GROUP}
    ORDER BY {_AT} DESC, id DESC
    LIMIT 1
) AS latest
CROSS JOIN LATERAL (
    SELECT pg_catalog.array_agg(DISTINCT one.task) AS tasks
    FROM (
        SELECT task {_IN_GROUP}
        ORDER BY {_AT} DESC, id DESC
        LIMIT (SELECT %(task_letters)s)
    ) AS one
) AS several
ORDER BY latest.finished_at DESC, latest.id DESC
"""  # noqa: S608 - made of constants

GROUPS = _SHOWN + _FACTS
GROUP = _ONE + _FACTS
THESE = _THESE + _FACTS
NAMES = f"""{_KNOWN}
SELECT fingerprint, {_PLACED.format("")}, (SELECT count(*) FROM walked) > %(most_groups)s FROM known
"""  # noqa: S608 - made of constants

LETTERS = f"""
SELECT
    id, task, queue, attempts - refunds, max_attempts, finished_at, statement_timestamp(),
    {_PLACED.format("")}, pg_catalog.left(last_error, %(sample)s)
FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} = %(fingerprint)s
    AND ({_AT}, id) < (%(finished_at)s::timestamptz AT TIME ZONE 'UTC', %(id)s::bigint)
ORDER BY {_AT} DESC, id DESC
LIMIT (SELECT %(page_size)s + 1)
"""  # noqa: S608 - made of constants

OLDEST = f"""
SELECT id
FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} = %(fingerprint)s
    AND ({_AT}, id) <= (%(finished_at)s::timestamptz AT TIME ZONE 'UTC', %(id)s::bigint)
ORDER BY {_AT}, id
LIMIT (SELECT %(most)s + 1)
"""  # noqa: S608 - made of constants
