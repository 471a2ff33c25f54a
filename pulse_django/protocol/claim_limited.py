"""Grant leases on jobs with a limit: a lease is the slot, and nothing else is acquired or released.

Three statements of one message: lock, count, claim. One cannot do it: its snapshot is taken before it has the lock, so
it would count without the leases that the lock's holder before it has granted.

Locks are tried and never waited for. They end with the transaction, which the server runs without the worker: one that
dies or freezes holds none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from pulse_django.store.job_queries import JobReader
from pulse_django.store.lane_queries import IS_PAUSED
from pulse_django.store.transactions import refuse_callers_transaction, run_message
from pulse_django.words.identity import Identity
from pulse_django.words.lanes import Lane
from pulse_django.words.leases import Claim

from .claim import FROM_THE_FIRST, claim_of, claim_pick, claiming
from .limiters import IN_FORCE

# Of one claim: a lock each. PostgreSQL's table of locks has room for 64 of each connection.
MOST_LANES = 60
LOCK_CLASS = 1_886_547_059  # of our advisory locks; the other half of a lock is the hash of what it is for
NO_MARKS: Mapping[str, int] = MappingProxyType({})
NOTHING_SAID: Mapping[Lane, int] = MappingProxyType({})

# The limiter's numbers. Without a row it has no limit.
LIMITER = f"""
limiter AS MATERIALIZED (
    SELECT
        asked.name, CASE WHEN half_open THEN 1 ELSE (n ->> 'running'::text)::int END AS running,
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
)"""  # noqa: S608 - made of constants

# The first scope is the limiter, the others are keys. What has no limit needs no lock.
_LOCK = f"""
WITH {LIMITER}
SELECT
    pg_catalog.set_config('pulse.got', COALESCE(pg_catalog.array_agg(scope.place)::text, '{{}}'), true),
    COALESCE(pg_catalog.array_agg(scope.name), '{{}}'::text[])
FROM limiter
CROSS JOIN pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS scope (name, place)
WHERE CASE
    WHEN scope.place = 1 AND limiter.running IS NULL AND limiter.rate IS NULL THEN false
    WHEN scope.place > 1 AND limiter.per_key IS NULL AND limiter.key_rate IS NULL THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock({LOCK_CLASS}, pg_catalog.hashtext(scope.name))
END
"""  # noqa: S608 - made of constants

# A bucket holds ``burst`` tokens and gets n - burst + 1 in each period: never more than n starts in any period. One
# that held n, and got n, would let nearly 2n start after a pause.
TOKENS = """LEAST(
            {burst},
            COALESCE({bucket}.tokens, {burst}) + ({n} - {burst} + 1::float8) / {per}
                * GREATEST(0, EXTRACT(epoch FROM {at} - {bucket}.at)::float8)
        )"""
NEXT_IN = "(1::float8 - {tokens}) * {per} / ({n} - {burst} + 1::float8)"
OVERALL = {"n": "limiter.rate", "per": "limiter.rate_per", "burst": "limiter.rate_burst", "bucket": "bucket"}
OF_KEY = {
    "n": "limiter.key_rate",
    "per": "limiter.key_rate_per",
    "burst": "limiter.key_rate_burst",
    "bucket": "bucket",
}

# Written with the instant at which the locks were held, so that starts stand in the ledger as the buckets count them.
_AT = "pg_catalog.current_setting('pulse.at')::timestamptz"

# A mark is the smallest token that a run of the scope can have: what is below has ended. Tokens of a scope are minted
# under its lock, so whoever has it knows all of them.
_COUNT = f"""
WITH {LIMITER},
clock AS MATERIALIZED (SELECT clock_timestamp() AS at, pg_catalog.current_setting('pulse.got')::int[] AS got),
held AS MATERIALIZED (
    SELECT pg_catalog.count(*) AS n, pg_catalog.min(token) AS low
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '')
        AND (pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE "C") = %s::text AND token >= %s
),
overall AS MATERIALIZED (
    SELECT
        CASE
            WHEN limiter.running IS NULL AND limiter.rate IS NULL THEN true
            ELSE 1 = ANY (clock.got)
        END AS is_mine,
        CASE WHEN limiter.running IS NOT NULL THEN limiter.running - (SELECT n FROM held) END AS slots,
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
        CASE WHEN limiter.per_key IS NOT NULL THEN limiter.per_key - count.n END AS slots,
        CASE WHEN lane.key <> limiter.name THEN {TOKENS.format(at="clock.at", **OF_KEY)} END AS tokens
    FROM limiter
    CROSS JOIN clock
    CROSS JOIN ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::int[]), pg_catalog.unnest(%s::bigint[])
    ) WITH ORDINALITY AS lane (key, take, mark, place)
    LEFT JOIN LATERAL (
        SELECT pg_catalog.count(*) AS n, pg_catalog.min(token) AS low
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
        WHEN NOT overall.is_mine OR limiter.closed_until > clock.at THEN 0
        ELSE GREATEST(0, LEAST(%s, overall.slots, pg_catalog.floor(overall.tokens)))
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
    pg_catalog.set_config('pulse.probe', limiter.half_open::text, true),
    limiter.version,
    limiter.running IS NOT NULL,
    limiter.per_key IS NOT NULL,
    overall.is_mine AND (SELECT pg_catalog.bool_and(keyed.is_mine) FROM keyed),
    overall.low,
    (SELECT pg_catalog.array_agg(keyed.low ORDER BY keyed.place) FROM keyed),
    GREATEST(
        EXTRACT(epoch FROM limiter.closed_until - clock.at)::float8,
        CASE WHEN overall.tokens < 1::float8 THEN {NEXT_IN.format(tokens="overall.tokens", **OVERALL)} END,
        (
            SELECT pg_catalog.min({NEXT_IN.format(tokens="keyed.tokens", **OF_KEY)}) FROM keyed
            HAVING pg_catalog.max(keyed.tokens) < 1::float8
        )
    )
FROM limiter
CROSS JOIN clock
CROSS JOIN overall
"""  # noqa: S608 - made of constants

_PICK = f"""
    SELECT pick.id, pick.bytes
    FROM ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::smallint[]), pg_catalog.unnest(%s::text[]),
        pg_catalog.unnest(pg_catalog.current_setting('pulse.takes')::int[]), pg_catalog.unnest(%s::float8[])
    ) AS lane (queue, priority, key, take, since)
    CROSS JOIN LATERAL ({{pick}}) AS pick
    WHERE lane.take > 0 AND lane.queue <> ALL (ARRAY(
        SELECT name::text FROM pulse_django_queue WHERE {IS_PAUSED}
    ))
    LIMIT pg_catalog.current_setting('pulse.most')::int
"""  # noqa: S608 - made of constants

# Of a limiter that was closed or has no rate, nothing is spent. Jobs from before the limit had keys have none, and the
# bucket of their lane would be the limiter's.
_SPENT = f""",
{LIMITER},
spent AS (
    INSERT INTO pulse_django_bucket AS bucket (scope, tokens, at)
    SELECT
        taken.scope,
        {TOKENS.format(at=_AT, n="taken.n", per="taken.per", burst="taken.burst", bucket="old")} - taken.starts,
        GREATEST(old.at, {_AT})
    FROM (
        SELECT
            limiter.name AS scope, rate AS n, rate_per AS per, rate_burst AS burst,
            pg_catalog.count(*)::float8 AS starts
        FROM claimed
        CROSS JOIN limiter
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
    ON CONFLICT (scope) DO UPDATE SET tokens = excluded.tokens, at = excluded.at
)"""  # noqa: S608 - made of constants


class LimitedClaim(NamedTuple):
    """What one limiter granted."""

    claims: list[Claim]
    allowed: Mapping[Lane, int] = NOTHING_SAID  # of each lane; nothing if they were fewer in all
    is_contended: bool = False  # another claimer had a lock: look again in a moment
    due_in: float | None = None  # seconds until something may start again, if only time stands in the way
    marks: Mapping[str, int] = NO_MARKS  # of the scopes that were counted, for the next claim
    version: str | None = None  # of the limiter's row: another one, other numbers


def claim_limited(
    jobs: JobReader,
    identity: Identity,
    limiter: str,
    lanes: Sequence[Lane],
    takes: Mapping[Lane, int],
    *,
    limit: int,
    marks: Mapping[str, int] = NO_MARKS,
) -> LimitedClaim:
    """Grant leases on up to ``limit`` due jobs of one limiter: of each of these lanes as many as ``takes`` says.

    Never more than the limiter allows, however many claim at once. ``marks`` are those of the claims before.
    """
    refuse_callers_transaction(jobs.write_alias)
    by_key: dict[str, Lane] = {}
    for lane in lanes:
        if takes.get(lane) and len(by_key) < MOST_LANES:
            by_key.setdefault(lane.key, lane)  # a key that waits in two lanes would be granted twice
    if not by_key or limit < 1:
        return LimitedClaim([])
    keys, visited = list(by_key), list(by_key.values())
    holder = identity.mint_holder()
    pick, pick_params = claim_pick(jobs.model, jobs.write_alias)
    queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
    sql, values = claiming(
        _PICK.format(pick=pick),
        [queues, priorities, keys, [FROM_THE_FIRST] * len(keys), *pick_params],
        holder,
        started=_AT,
        probe="pg_catalog.current_setting('pulse.probe')::boolean",
        spent=_SPENT,
    )
    count = [
        limiter, limiter, marks.get(limiter, 0), keys, [takes[lane] for lane in visited],
        [marks.get(key, 0) for key in keys], limit,
    ]  # fmt: skip
    [[_, locked]], [counted], rows = run_message(
        jobs.write_alias, [(_LOCK, [limiter, [limiter, *keys]]), (_COUNT, count), (sql, [*values, limiter])]
    )
    claims = [claim_of(row, holder) for row in rows]
    _, most, allowed, _, version, are_counted, are_keys_counted, is_mine, low, lows, due_in = counted
    lowest = dict(zip(keys, lows, strict=True)) if are_keys_counted else {}
    lowest |= {limiter: low} if are_counted else {}
    marks = _marks({scope: lowest[scope] for scope in locked if scope in lowest}, limiter, claims)
    each = dict(zip(visited, map(int, allowed.strip("{}").split(",")), strict=True))
    return LimitedClaim(claims, each if len(claims) < int(most) else NOTHING_SAID, not is_mine, due_in, marks, version)


def _marks(lowest: Mapping[str, int | None], limiter: str, claims: Sequence[Claim]) -> dict[str, int]:
    """Return the smallest token of each scope that was locked: of its runs then, or else of those that begin now."""
    marks = {scope: low for scope, low in lowest.items() if low is not None}
    for claim in reversed(claims):
        for scope in {limiter, claim.lane_key} & lowest.keys() - marks.keys():
            marks[scope] = min(one.token for one in claims if scope in (limiter, one.lane_key))
    return marks
