"""The statements around a claim of jobs with a limit: lock its scopes, count what they hold, note what was started."""

from __future__ import annotations

import re
from collections.abc import Mapping

from .limiters import IN_FORCE

LOCK_CLASS = 1_886_547_059  # of our advisory locks; the other half of a lock is the hash of what it is for

NO_LIMIT = 2_147_483_647  # as an integer of PostgreSQL

# A limiter's numbers. One that probes has a limit, which is one run of whatever weight. Without a row it has no limit.
_NUMBERS = f"""
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'running'::text)::int, {NO_LIMIT})
            ELSE (n ->> 'running'::text)::int
        END AS running,
        (n ->> 'per_key'::text)::int AS per_key,
        (n ->> 'rate'::text)::float8 AS rate, (n ->> 'rate_per'::text)::float8 AS rate_per,
        CASE WHEN n ->> 'rate'::text IS NOT NULL THEN
            LEAST((n ->> 'rate'::text)::float8, COALESCE((n ->> 'rate_burst'::text)::float8, 1))
        END AS rate_burst,
        (n ->> 'key_rate'::text)::float8 AS key_rate, (n ->> 'key_rate_per'::text)::float8 AS key_rate_per,
        CASE WHEN n ->> 'key_rate'::text IS NOT NULL THEN
            LEAST((n ->> 'key_rate'::text)::float8, COALESCE((n ->> 'key_rate_burst'::text)::float8, 1))
        END AS key_rate_burst,
        row.closed_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT %s::text AS name) AS asked
    LEFT JOIN (
        SELECT name, {IN_FORCE} AS n, closed_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
"""  # noqa: S608 - made of constants
LIMITER = f"""
limiter AS MATERIALIZED ({_NUMBERS})"""
# The limit of the queue, if it has one beside that of its tasks.
_LIMITERS = f"""{LIMITER},
whole AS MATERIALIZED ({_NUMBERS})"""

# The scope 0 is the queue, 1 the limiter, and the others are keys. What has no limit needs no lock.
LOCK = f"""
WITH {_LIMITERS}
SELECT
    pg_catalog.set_config('pulse.got', COALESCE(pg_catalog.array_agg(scope.place)::text, '{{}}'), true),
    COALESCE(pg_catalog.array_agg(scope.name), '{{}}'::text[])
FROM limiter
CROSS JOIN whole
CROSS JOIN (
    SELECT name, place - 1 AS place FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS listed (name, place)
) AS scope
WHERE CASE
    WHEN scope.place = 0 AND whole.running IS NULL AND whole.rate IS NULL THEN false
    WHEN scope.place = 1 AND limiter.running IS NULL AND limiter.rate IS NULL THEN false
    WHEN scope.place > 1 AND limiter.per_key IS NULL AND limiter.key_rate IS NULL THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock({LOCK_CLASS}, pg_catalog.hashtext(scope.name))
END
"""  # noqa: S608 - made of constants

# A bucket holds ``burst`` tokens and gets n - burst + 1 in each period: never more than n starts in any period. One
# that held n, and got n, would let nearly 2n start after a pause.
#
# A bucket may be ahead of the clock, if that was set back. Then it has fewer tokens than were written, or less than
# none: what started stands in the ledger at instants to come. One that is ahead by more than its period counts as none.
TOKENS = """LEAST(
            {burst},
            CASE WHEN EXTRACT(epoch FROM {bucket}.at - {at})::float8 <= {per} THEN
                {bucket}.tokens + ({n} - {burst} + 1::float8) / {per}
                    * EXTRACT(epoch FROM {at} - {bucket}.at)::float8
            END
        )"""
NEXT_IN = "(1::float8 - {tokens}) * {per} / ({n} - {burst} + 1::float8)"
OVERALL = {"n": "limiter.rate", "per": "limiter.rate_per", "burst": "limiter.rate_burst", "bucket": "bucket"}
OF_QUEUE = {"n": "whole.rate", "per": "whole.rate_per", "burst": "whole.rate_burst", "bucket": "bucket"}
OF_KEY = {
    "n": "limiter.key_rate",
    "per": "limiter.key_rate_per",
    "burst": "limiter.key_rate_burst",
    "bucket": "bucket",
}

# Written with the instant at which the locks were held, so that starts stand in the ledger as the buckets count them.
AT = "pg_catalog.current_setting('pulse.at')::timestamptz"

# Why a scope allows nothing now; NULL if it does not stand in the way.
_REFUSAL = """CASE
        WHEN {row}.closed_until > clock.at THEN 'closed'
        WHEN NOT {use}.is_mine THEN 'contended'
        WHEN LEAST({use}.slots, {use}.probes) <= 0::bigint THEN 'full'
        WHEN {use}.tokens < 1::float8 THEN 'rate'
    END"""
# The same of keys, of which none has to be free: the first of these that holds for any.
_REFUSAL_OF_KEYS = """SELECT CASE
            WHEN pg_catalog.bool_or(NOT keyed.is_mine) THEN 'contended'
            WHEN pg_catalog.bool_or(keyed.slots <= 0::bigint) THEN 'full'
            WHEN pg_catalog.bool_or(keyed.tokens < 1::float8) THEN 'rate'
        END
        FROM keyed"""

# A mark is the smallest token that a run of the scope can have: what is below has ended. Tokens of a scope are minted
# under its lock, so whoever has it knows all of them.
COUNT = f"""
WITH {_LIMITERS},
clock AS MATERIALIZED (SELECT clock_timestamp() AS at, pg_catalog.current_setting('pulse.got')::int[] AS got),
held AS MATERIALIZED (
    SELECT
        pg_catalog.count(*) AS n, COALESCE(pg_catalog.sum(weight), 0) AS weight, pg_catalog.min(token) AS low
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '')
        AND (pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE "C") = %s::text AND token >= %s
),
held_of_queue AS MATERIALIZED (
    SELECT COALESCE(pg_catalog.sum(weight), 0) AS weight, pg_catalog.min(token) AS low
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND queue::text = %s::text AND token >= %s
),
of_queue AS MATERIALIZED (
    SELECT
        (whole.running IS NULL AND whole.rate IS NULL) OR 0 = ANY (clock.got) AS is_mine,
        CASE WHEN whole.running IS NOT NULL THEN whole.running - (SELECT weight FROM held_of_queue) END AS slots,
        NULL::bigint AS probes,
        CASE WHEN whole.running IS NOT NULL THEN (SELECT low FROM held_of_queue) END AS low,
        {TOKENS.format(at="clock.at", **OF_QUEUE)} AS tokens
    FROM whole
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON whole.rate IS NOT NULL AND bucket.scope::text = whole.name
),
overall AS MATERIALIZED (
    SELECT
        (limiter.running IS NULL AND limiter.rate IS NULL) OR 1 = ANY (clock.got) AS is_mine,
        CASE WHEN limiter.running IS NOT NULL THEN limiter.running - (SELECT weight FROM held) END AS slots,
        CASE WHEN limiter.half_open THEN 1 - (SELECT n FROM held) END AS probes,
        CASE WHEN limiter.running IS NOT NULL THEN (SELECT low FROM held) END AS low,
        {TOKENS.format(at="clock.at", **OVERALL)} AS tokens
    FROM limiter
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.rate IS NOT NULL AND bucket.scope::text = limiter.name
),
keyed AS MATERIALIZED (
    SELECT
        lane.place, lane.take, count.low,
        CASE
            WHEN limiter.per_key IS NULL AND limiter.key_rate IS NULL THEN true
            ELSE lane.place + 1 = ANY (clock.got)
        END AS is_mine,
        CASE WHEN limiter.per_key IS NOT NULL THEN limiter.per_key - count.weight END AS slots,
        CASE WHEN lane.key <> limiter.name THEN {TOKENS.format(at="clock.at", **OF_KEY)} END AS tokens
    FROM limiter
    CROSS JOIN clock
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::int[]), pg_catalog.unnest(%s::bigint[])
    ) WITH ORDINALITY AS lane (key, take, mark, place)
    LEFT JOIN LATERAL (
        SELECT COALESCE(pg_catalog.sum(weight), 0) AS weight, pg_catalog.min(token) AS low
        FROM pulse_django_job_hot
        WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND lane_key::text = lane.key
            AND token >= lane.mark
    ) AS count ON limiter.per_key IS NOT NULL
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.key_rate IS NOT NULL AND bucket.scope::text = lane.key
)
SELECT
    pg_catalog.set_config(
        'pulse.at', pg_catalog.to_char(clock.at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'), true
    ),
    pg_catalog.set_config('pulse.most', (CASE
        WHEN NOT (overall.is_mine AND of_queue.is_mine) THEN 0
        WHEN GREATEST(limiter.closed_until, whole.closed_until) > clock.at THEN 0
        ELSE GREATEST(0, LEAST(
            %s, overall.slots, overall.probes, pg_catalog.floor(overall.tokens),
            of_queue.slots, pg_catalog.floor(of_queue.tokens)
        ))
    END)::int::text, true),
    pg_catalog.set_config('pulse.takes', (
        SELECT pg_catalog.array_agg(
            CASE
                WHEN keyed.is_mine THEN GREATEST(0, LEAST(keyed.take, keyed.slots, pg_catalog.floor(keyed.tokens)))
                ELSE 0
            END::int ORDER BY keyed.place
        )::text
        FROM keyed
    ), true),
    pg_catalog.set_config(
        'pulse.slots', COALESCE(LEAST(overall.slots, of_queue.slots), {NO_LIMIT})::int::text, true
    ),
    pg_catalog.set_config(
        'pulse.heaviest', COALESCE(LEAST(limiter.running, whole.running), {NO_LIMIT})::text, true
    ),
    pg_catalog.set_config('pulse.key_slots', (
        SELECT pg_catalog.array_agg(COALESCE(keyed.slots, {NO_LIMIT})::int ORDER BY keyed.place)::text FROM keyed
    ), true),
    pg_catalog.set_config('pulse.probe', limiter.half_open::text, true),
    pg_catalog.concat(limiter.version, ' ', whole.version),
    pg_catalog.jsonb_build_object('limiter', limiter.running, 'key', limiter.per_key, 'queue', whole.running)::text,
    overall.is_mine AND of_queue.is_mine AND (SELECT pg_catalog.bool_and(keyed.is_mine) FROM keyed),
    overall.low,
    of_queue.low,
    (SELECT pg_catalog.array_agg(keyed.low ORDER BY keyed.place) FROM keyed),
    GREATEST(
        CASE WHEN GREATEST(limiter.closed_until, whole.closed_until) > clock.at THEN
            EXTRACT(epoch FROM GREATEST(limiter.closed_until, whole.closed_until) - clock.at)::float8
        END,
        CASE WHEN of_queue.tokens < 1::float8 THEN {NEXT_IN.format(tokens="of_queue.tokens", **OF_QUEUE)} END,
        CASE WHEN overall.tokens < 1::float8 THEN {NEXT_IN.format(tokens="overall.tokens", **OVERALL)} END,
        (
            SELECT pg_catalog.min({NEXT_IN.format(tokens="keyed.tokens", **OF_KEY)}) FROM keyed
            HAVING pg_catalog.max(keyed.tokens) < 1::float8
        )
    ),
    {_REFUSAL.format(row="whole", use="of_queue")},
    COALESCE({_REFUSAL.format(row="limiter", use="overall")}, ({_REFUSAL_OF_KEYS}))
FROM limiter
CROSS JOIN whole
CROSS JOIN clock
CROSS JOIN overall
CROSS JOIN of_queue
"""  # noqa: S608 - made of constants

# Of a limiter that was closed or has no rate, nothing is spent. Jobs from before the limit had keys have none, and the
# bucket of their lane would be the limiter's.
_SPENDING = f"""
    SELECT
        taken.scope,
        {TOKENS.format(at=AT, n="taken.n", per="taken.per", burst="taken.burst", bucket="old")} - taken.starts,
        {AT}
    FROM (
        SELECT
            limiter.name AS scope, rate AS n, rate_per AS per, rate_burst AS burst,
            pg_catalog.count(*)::float8 AS starts
        FROM claimed
        CROSS JOIN limiter
        WHERE rate IS NOT NULL
        GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT whole.name, rate, rate_per, rate_burst, pg_catalog.count(*)::float8
        FROM claimed
        CROSS JOIN whole
        WHERE rate IS NOT NULL
        GROUP BY 1, 2, 3, 4
        UNION ALL
        SELECT claimed.lane_key, key_rate, key_rate_per, key_rate_burst, pg_catalog.count(*)::float8
        FROM claimed
        CROSS JOIN limiter
        WHERE key_rate IS NOT NULL AND claimed.lane_key::text <> limiter.name
        GROUP BY 1, 2, 3, 4
    ) AS taken
    LEFT JOIN pulse_django_bucket AS old ON old.scope::text = taken.scope
"""  # noqa: S608 - made of constants
_INTO_BUCKETS = "INSERT INTO pulse_django_bucket AS bucket (scope, tokens, at)"
_AGAIN = "ON CONFLICT (scope) DO UPDATE SET tokens = excluded.tokens, at = excluded.at"
SPENT = f""",
{_LIMITERS},
spent AS (
    {_INTO_BUCKETS}{_SPENDING}    {_AGAIN}
)"""

# Citus cannot send that to a node: it works out what is spent, from the lanes of what was claimed, and then writes it.
SPENT_BY = f"WITH claimed AS MATERIALIZED (SELECT pg_catalog.unnest(%s::text[]) AS lane_key),{_LIMITERS}{_SPENDING}"
SPEND = f"""
{_INTO_BUCKETS}
SELECT *
FROM ROWS FROM (
    pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::float8[]), pg_catalog.unnest(%s::timestamptz[])
) AS taken (scope, tokens, at)
{_AGAIN}
RETURNING scope
"""  # noqa: S608 - made of constants

# What one of these statements says to the next, in settings of the transaction.
SAID = ("at", "most", "takes", "slots", "heaviest", "key_slots", "probe")
_SETTING = re.compile(r"pg_catalog\.current_setting\('pulse\.(\w+)'\)")
_PLAIN_VALUE = re.compile(r"[\w{},:.+ -]*")  # numbers, arrays of them, true, false, an instant


def spelt_out(sql: str, values: Mapping[str, str]) -> str:
    """Return the statement with values in the place of these settings, which Citus keeps on the node that set them."""
    for value in values.values():
        if not _PLAIN_VALUE.fullmatch(value):
            raise ValueError("this is not what a statement of a limited claim says")
    return _SETTING.sub(lambda found: f"'{values[found[1]]}'::text", sql)
