"""The SQL of dead letters grouped by error. What each statement may read is bounded.

Three habits keep PostgreSQL on ``pulse_job_fingerprint``, whatever its statistics say:

- ORDER BY begins with the fingerprint, and a group is a range of it. Under ``=`` the fingerprint would drop out of
  the order, and the index on (finished_at, id) could give it: all dead letters read to find one of a rare group.
- A limit of many is a sub-select, whose value the planner does not know: told of a limit that is larger than its
  estimate of the group, it may read and sort the whole of it.
- The status is spelled out, because a parameter proves no condition of an index.
"""

from __future__ import annotations

from pulse_django.store.loose_scan import loose_scan
from pulse_django.store.sql_functions import Fingerprint

_PRINT = Fingerprint.template % {"expressions": "last_error"}

# Downwards, so that each probe finds the latest dead letter of its group as well.
WALKED = loose_scan(
    "walked",
    f"{_PRINT} AS fingerprint, finished_at, id",
    where="status::text = 'DEAD_LETTERED'",
    order=f"{_PRINT} DESC, finished_at DESC, id DESC",
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
    SELECT fingerprint, groups, (SELECT count(*) FROM walked) > %(most_groups)s AS is_partial
    FROM known
    ORDER BY finished_at DESC, fingerprint
    LIMIT %(page_size)s OFFSET %(offset)s
)"""  # noqa: S608 - made of constants

# Over several shards, the groups of a page are chosen among those that each shard knows, and then looked at in each.
_THESE = """
WITH shown AS (
    SELECT fingerprint, 1 AS groups, false AS is_partial
    FROM pg_catalog.unnest(%(fingerprints)s::text[]) AS one (fingerprint)
)"""

_ONE = """
WITH shown AS (SELECT %(fingerprint)s::text AS fingerprint, 1 AS groups, false AS is_partial)"""

_IN_GROUP = f"""
        FROM pulse_django_job_hot
        WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} BETWEEN shown.fingerprint AND shown.fingerprint"""

# Microseconds, which say which instant they are: without time zones Django would be given one that does not.
_PLACED = "(EXTRACT(epoch FROM {}finished_at) * 1000000.0)::bigint"

_FACTS = f"""
SELECT
    shown.groups, shown.is_partial, statement_timestamp(), shown.fingerprint, counted.letters, counted.tasks,
    earliest.finished_at, latest.finished_at, {_PLACED.format("latest.")}, latest.id, latest.sample
FROM shown
CROSS JOIN LATERAL (
    SELECT finished_at {_IN_GROUP}
    ORDER BY {_PRINT}, finished_at, id
    LIMIT 1
) AS earliest
CROSS JOIN LATERAL (
    SELECT finished_at, id, pg_catalog.left(last_error, %(sample)s) AS sample {_IN_GROUP}
    ORDER BY {_PRINT} DESC, finished_at DESC, id DESC
    LIMIT 1
) AS latest
CROSS JOIN LATERAL (
    SELECT count(*) AS letters, pg_catalog.array_agg(DISTINCT one.task) AS tasks
    FROM (
        SELECT task {_IN_GROUP}
        ORDER BY {_PRINT} DESC, finished_at DESC, id DESC
        LIMIT (SELECT %(most_counted)s + 1)
    ) AS one
) AS counted
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
WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} BETWEEN %(fingerprint)s AND %(fingerprint)s
    AND ({_PRINT}, finished_at, id) < (%(fingerprint)s, %(finished_at)s::timestamptz, %(id)s::bigint)
ORDER BY {_PRINT} DESC, finished_at DESC, id DESC
LIMIT (SELECT %(page_size)s + 1)
"""  # noqa: S608 - made of constants

OLDEST = f"""
SELECT id
FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED' AND {_PRINT} BETWEEN %(fingerprint)s AND %(fingerprint)s
    AND ({_PRINT}, finished_at, id) <= (%(fingerprint)s, %(finished_at)s::timestamptz, %(id)s::bigint)
ORDER BY {_PRINT}, finished_at, id
LIMIT (SELECT %(most)s + 1)
"""  # noqa: S608 - made of constants
