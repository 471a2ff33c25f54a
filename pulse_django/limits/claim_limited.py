"""Grant leases on jobs with a limit: a lease is the slot, and nothing else is acquired or released.

Three statements in one message: lock, count, claim. One statement is not enough: its snapshot is taken before it has
the lock, so it would not count the leases that the previous holder of the lock granted.

A claim tries locks and never waits for them. They end with the transaction, which the server completes without the
worker: a worker that dies or freezes holds no lock.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from pulse_django.queue.capability import Bounds
from pulse_django.queue.claim import FROM_THE_FIRST, GRANTED, Claims, Parts, Slots, claiming, claims_of, pick_from_lanes
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.transactions import Row, refuse_callers_transaction, run_message
from pulse_django.queue.words.lane_keys import limiter_of_queue
from pulse_django.queue.words.lanes import Lane
from pulse_django.queue.words.leases import Claim, Identity

from .limiters import IN_FORCE

# In one claim: each takes a lock. PostgreSQL's lock table has room for 64 locks of each connection.
MOST_LANES = 60
NO_MARKS: Mapping[str, int] = MappingProxyType({})
NOTHING_SAID: Mapping[Lane, int] = MappingProxyType({})

_PICK = """
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, pick.max_lost_workers, lane.place
    FROM {read}ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::smallint[]), pg_catalog.unnest(%s::text[]),
        pg_catalog.unnest(pg_catalog.current_setting('pulse.takes')::int[]), pg_catalog.unnest(%s::float8[])
    ) WITH ORDINALITY AS lane (queue, priority, key, take, since, place)
    CROSS JOIN LATERAL ({pick}) AS pick
    WHERE lane.take > 0 AND {are_open}
    LIMIT pg_catalog.current_setting('pulse.most')::int
"""

# Jobs that are too heavy for their key are left out before the others are summed up. Jobs behind one in its lane wait.
_IN_LINE = """of_lanes AS (
    SELECT
        id, bytes, weight, lease_ttl, timeout, max_lost_workers, lane, line_place,
        weighs <= (pg_catalog.current_setting('pulse.key_slots')::int[])[lane] AS fits_key
    FROM (
        SELECT
            id, bytes, weight, lease_ttl, timeout, max_lost_workers, lane, line_place,
            pg_catalog.sum(weight) OVER (PARTITION BY lane ORDER BY line_place) AS weighs
        FROM (
            SELECT
                id, bytes, weight, lease_ttl, timeout, max_lost_workers, place AS lane,
                row_number() OVER () AS line_place
            FROM picked
        ) AS numbered
    ) AS summed
),
in_line AS (
    SELECT
        id, lease_ttl, timeout, bytes, lane, fits_key,
        pg_catalog.sum(CASE WHEN fits_key THEN bytes ELSE 0 END) OVER line AS so_far,
        pg_catalog.sum(CASE WHEN fits_key THEN LEAST(weight, %s::int) ELSE 0 END) OVER line AS slots,
        pg_catalog.sum(CASE WHEN fits_key THEN weight ELSE 0 END) OVER line AS weighs,
        pg_catalog.count(*) FILTER (WHERE fits_key AND max_lost_workers IS DISTINCT FROM 0) OVER line AS place
    FROM of_lanes
    WINDOW line AS (ORDER BY line_place)
)"""


# A job that is heavier than a lowered limit is skipped: it cannot start, even if all others end.
HEAVIEST = "pg_catalog.current_setting('pulse.heaviest')::int"


class LimitedClaim(NamedTuple):
    """The leases that one limiter granted."""

    claims: Claims
    allowed: Mapping[Lane, int] = NOTHING_SAID  # of each lane; empty if there were fewer in total
    is_contended: bool = False  # another claimer had a lock: try again soon
    due_in: float | None = None  # seconds until a job may start, if only the rate or a pause prevents it
    marks: Mapping[str, int] = NO_MARKS  # of the counted scopes, for the next claim
    version: str | None = None  # version of the limiter's row; it changes with the numbers
    refusal: tuple[str, str] | None = None  # the limit that prevents a start, and the reason
    may_wait: Bounds | None = None  # None: no more was claimed than there were free slots


def claim_limited(
    jobs: JobReader,
    identity: Identity,
    limiter: str,
    lanes: Sequence[Lane],
    takes: Mapping[Lane, int],
    *,
    limit: int,
    slots: Slots | None = None,
    queue: str | None = None,
    marks: Mapping[str, int] = NO_MARKS,
) -> LimitedClaim:
    """Grant leases on up to ``limit`` due jobs of one limiter: on up to ``takes`` jobs of each lane.

    Never more than the limiter allows, even if many workers claim at once. ``queue``: all lanes are of that queue, and
    its limit applies as well. An empty ``limiter``: only that applies. ``marks`` are those of earlier claims.
    ``slots`` are as in ``claim()``.
    """
    refuse_callers_transaction(jobs.write_alias)
    by_key: dict[str, Lane] = {}
    for lane in lanes:
        if takes.get(lane) and len(by_key) < MOST_LANES:
            by_key.setdefault(lane.key, lane)  # a key that waits in two lanes would be granted twice
    if not by_key or limit < 1:
        return LimitedClaim(Claims())
    keys, visited = list(by_key), list(by_key.values())
    queue_limit = "" if queue is None else limiter_of_queue(queue)  # there is no row of an empty name
    holder, slots = identity.mint_holder(), slots or Slots(limit, limit)
    picked, pick_params = pick_from_lanes(_PICK, jobs.model, jobs.write_alias, keyed=True, heaviest=HEAVIEST)
    queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
    sending = statements_for(LimitedClaiming, jobs.write_alias)
    lane_params = [queues, priorities, keys, [FROM_THE_FIRST] * len(keys)]
    sql, values = claiming(
        jobs.write_alias, picked, [*lane_params, *pick_params], holder, slots, LIMITED._replace(spent=sending.spent)
    )
    count = [
        limiter, queue_limit, limiter, marks.get(limiter, 0), queue or "", marks.get(queue_limit, 0), keys,
        [takes[lane] for lane in visited], [marks.get(key, 0) for key in keys], limit, slots.free,
    ]  # fmt: skip
    lock, limiters = [limiter, queue_limit, [queue_limit, limiter, *keys]], [limiter, queue_limit]
    [[_, locked]], [counted], rows = sending.send(lock, count, sql, values, limiters)
    claims = claims_of(rows, holder)
    too_heavy = {visited[place - 1] for place in rows[0][-1] or ()}
    found = Counted(*counted)
    are_counted = json.loads(found.running)
    lowest = dict(zip(keys, found.lows_of_keys, strict=True)) if are_counted["key"] is not None else {}
    lowest |= {limiter: found.low} if are_counted["limiter"] is not None else {}
    lowest |= {queue_limit: found.low_of_queue} if are_counted["queue"] is not None else {}
    marks = _marks({scope: lowest[scope] for scope in locked if scope in lowest}, (limiter, queue_limit), claims)
    each = dict(zip(visited, map(int, found.takes.strip("{}").split(",")), strict=True))
    said = {} if len(claims) >= int(found.most) else {lane: n for lane, n in each.items() if lane not in too_heavy}
    refusals: list[tuple[str, Any]] = [
        (queue_limit, found.refusal_of_queue),
        (limiter, found.refusal or ("full" if too_heavy else None)),
    ]
    is_refused = not claims and not claims.is_left
    refusal = next((one for one in refusals if is_refused and one[1]), None)
    running = [number for number in (are_counted["limiter"], are_counted["queue"]) if number is not None]
    may_wait = None if found.must_start_at_once else Bounds(min(running, default=None), are_counted["key"])
    return LimitedClaim(claims, said, not found.has_all_locks, found.due_in, marks, found.version, refusal, may_wait)


def _marks(lowest: Mapping[str, int | None], shared: tuple[str, str], claims: Sequence[Claim]) -> dict[str, int]:
    """Return the smallest token of each locked scope: of its runs then or, without any, of those that begin now.

    ``shared`` are the scopes of all these claims.
    """
    marks = {scope: low for scope, low in lowest.items() if low is not None}
    for claim in reversed(claims):
        for scope in {*shared, claim.lane_key} & lowest.keys() - marks.keys():
            marks[scope] = min(one.token for one in claims if scope in (*shared, one.lane_key))
    return marks


# The statements around a claim of jobs with a limit: lock its scopes, count their leases, store the starts.


LOCK_CLASS = 1_886_547_059  # the first half of Pulse's advisory locks; the second is the hash of the name of the scope

NO_LIMIT = 2_147_483_647  # as an integer of PostgreSQL

_RATE = """(n ->> '{rate}'::text)::float8 AS {rate}, (n ->> '{rate}_per'::text)::float8 AS {rate}_per,
        CASE WHEN n ->> '{rate}'::text IS NOT NULL THEN
            LEAST((n ->> '{rate}'::text)::float8, COALESCE((n ->> '{rate}_burst'::text)::float8, 1))
        END AS {rate}_burst"""
# The numbers of a limiter. A limiter that probes allows one run of any weight. Without a row, it has no limit.
_NUMBERS = f"""
    SELECT
        asked.name, CASE WHEN half_open THEN COALESCE((n ->> 'max_running'::text)::int, {NO_LIMIT})
            ELSE (n ->> 'max_running'::text)::int
        END AS running,
        (n ->> 'max_running_per_key'::text)::int AS per_key,
        {_RATE.format(rate="rate")},
        {_RATE.format(rate="key_rate")},
        row.paused_until, COALESCE(row.half_open, false) AS half_open, row.version
    FROM (SELECT %s::text AS name) AS asked
    LEFT JOIN (
        SELECT name, {IN_FORCE} AS n, paused_until, half_open, xmin::text AS version FROM pulse_django_limiter
    ) AS row ON row.name::text = asked.name
"""  # noqa: S608 - made of constants
LIMITER = f"""
limiter AS MATERIALIZED ({_NUMBERS})"""
# The limit of the queue, if it has one in addition to that of its tasks.
LIMITERS = f"""{LIMITER},
queue_limit AS MATERIALIZED ({_NUMBERS})"""

# Scope 0 is the queue, scope 1 the limiter, and the others are keys. A scope without a limit needs no lock.
LOCK = f"""
WITH {LIMITERS}
SELECT
    pg_catalog.set_config('pulse.got', COALESCE(pg_catalog.array_agg(scope.place)::text, '{{}}'), true),
    COALESCE(pg_catalog.array_agg(scope.name), '{{}}'::text[])
FROM limiter
CROSS JOIN queue_limit
CROSS JOIN (
    SELECT name, place - 1 AS place FROM pg_catalog.unnest(%s::text[]) WITH ORDINALITY AS listed (name, place)
) AS scope
WHERE CASE
    WHEN scope.place = 0 AND queue_limit.running IS NULL AND queue_limit.rate IS NULL THEN false
    WHEN scope.place = 1 AND limiter.running IS NULL AND limiter.rate IS NULL THEN false
    WHEN scope.place > 1 AND limiter.per_key IS NULL AND limiter.key_rate IS NULL THEN false
    ELSE pg_catalog.pg_try_advisory_xact_lock({LOCK_CLASS}, pg_catalog.hashtext(scope.name))
END
"""  # noqa: S608 - made of constants

# A bucket holds ``burst`` tokens and gets n - burst + 1 in each period: never more than n starts in any period. A
# bucket that held n and got n would allow nearly 2n starts after an idle time.
#
# A bucket may be ahead of the clock if the clock was set back. Then it has fewer tokens than its row says, or less
# than none: its starts are in the future. A bucket that is ahead by more than its period counts as absent.
TOKENS = """LEAST(
            {burst},
            CASE WHEN EXTRACT(epoch FROM {bucket}.at - {at})::float8 <= {per} THEN
                {bucket}.tokens + ({n} - {burst} + 1::float8) / {per}
                    * EXTRACT(epoch FROM {at} - {bucket}.at)::float8
            END
        )"""
NEXT_IN = "(1::float8 - {tokens}) * {per} / ({n} - {burst} + 1::float8)"
OVERALL, OF_QUEUE, OF_KEY = (
    {"n": rate, "per": f"{rate}_per", "burst": f"{rate}_burst", "bucket": "bucket"}
    for rate in ("limiter.rate", "queue_limit.rate", "limiter.key_rate")
)

# Written with the time at which the locks were held, so that the ledger and the buckets have the same times of starts.
AT = "pg_catalog.current_setting('pulse.at')::timestamptz"

# Why a scope allows no start now; NULL if it allows one.
_REFUSAL = """CASE
        WHEN {row}.paused_until > clock.at THEN 'paused'
        WHEN NOT {use}.is_mine THEN 'contended'
        WHEN LEAST({use}.slots, {use}.probes) <= 0::bigint THEN 'full'
        WHEN {use}.tokens < 1::float8 THEN 'rate'
    END"""
# The same for keys, none of which may be free: the first of these reasons that applies to any.
_REFUSAL_OF_KEYS = """SELECT CASE
            WHEN pg_catalog.bool_or(NOT keyed.is_mine) THEN 'contended'
            WHEN pg_catalog.bool_or(keyed.slots <= 0::bigint) THEN 'full'
            WHEN pg_catalog.bool_or(keyed.tokens < 1::float8) THEN 'rate'
        END
        FROM keyed"""

# A start is counted when a job is claimed. With a rate, claimed jobs that wait for a slot would start together. After a
# pause of a limit, they would start although it may be paused again.
_AT_ONCE = """(
        COALESCE(limiter.rate, limiter.key_rate, queue_limit.rate) IS NOT NULL
        OR COALESCE(limiter.paused_until, queue_limit.paused_until) IS NOT NULL
    )"""

# A mark is the smallest token that a run of the scope can have: runs with smaller tokens have ended. Tokens of a scope
# are created under its lock, so the transaction that holds it sees all of them.
COUNT = f"""
WITH {LIMITERS},
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
        (queue_limit.running IS NULL AND queue_limit.rate IS NULL) OR 0 = ANY (clock.got) AS is_mine,
        CASE
            WHEN queue_limit.running IS NOT NULL THEN queue_limit.running - (SELECT weight FROM held_of_queue)
        END AS slots,
        NULL::bigint AS probes,
        CASE WHEN queue_limit.running IS NOT NULL THEN (SELECT low FROM held_of_queue) END AS low,
        {TOKENS.format(at="clock.at", **OF_QUEUE)} AS tokens
    FROM queue_limit
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON queue_limit.rate IS NOT NULL AND bucket.scope::text = queue_limit.name
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
        WHEN GREATEST(limiter.paused_until, queue_limit.paused_until) > clock.at THEN 0
        ELSE GREATEST(0, LEAST(
            %s, CASE WHEN {_AT_ONCE} THEN %s::int END, overall.slots, overall.probes,
            pg_catalog.floor(overall.tokens), of_queue.slots, pg_catalog.floor(of_queue.tokens)
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
        'pulse.heaviest', COALESCE(LEAST(limiter.running, queue_limit.running), {NO_LIMIT})::text, true
    ),
    pg_catalog.set_config('pulse.key_slots', (
        SELECT pg_catalog.array_agg(COALESCE(keyed.slots, {NO_LIMIT})::int ORDER BY keyed.place)::text FROM keyed
    ), true),
    pg_catalog.set_config('pulse.probe', limiter.half_open::text, true),
    pg_catalog.concat(limiter.version, ' ', queue_limit.version),
    pg_catalog.jsonb_build_object(
        'limiter', limiter.running, 'key', limiter.per_key, 'queue', queue_limit.running
    )::text,
    overall.is_mine AND of_queue.is_mine AND (SELECT pg_catalog.bool_and(keyed.is_mine) FROM keyed),
    overall.low,
    of_queue.low,
    (SELECT pg_catalog.array_agg(keyed.low ORDER BY keyed.place) FROM keyed),
    GREATEST(
        CASE WHEN GREATEST(limiter.paused_until, queue_limit.paused_until) > clock.at THEN
            EXTRACT(epoch FROM GREATEST(limiter.paused_until, queue_limit.paused_until) - clock.at)::float8
        END,
        CASE WHEN of_queue.tokens < 1::float8 THEN {NEXT_IN.format(tokens="of_queue.tokens", **OF_QUEUE)} END,
        CASE WHEN overall.tokens < 1::float8 THEN {NEXT_IN.format(tokens="overall.tokens", **OVERALL)} END,
        (
            SELECT pg_catalog.min({NEXT_IN.format(tokens="keyed.tokens", **OF_KEY)}) FROM keyed
            HAVING pg_catalog.max(keyed.tokens) < 1::float8
        )
    ),
    {_REFUSAL.format(row="queue_limit", use="of_queue")},
    COALESCE({_REFUSAL.format(row="limiter", use="overall")}, ({_REFUSAL_OF_KEYS})),
    {_AT_ONCE}
FROM limiter
CROSS JOIN queue_limit
CROSS JOIN clock
CROSS JOIN overall
CROSS JOIN of_queue
"""  # noqa: S608 - made of constants

# A limiter that is paused or has no rate spends nothing. Jobs that are older than the limit's keys have no key, and the
# bucket of their lane would be that of the limiter.
SPENDING = f"""
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
        SELECT queue_limit.name, rate, rate_per, rate_burst, pg_catalog.count(*)::float8
        FROM claimed
        CROSS JOIN queue_limit
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
INTO_BUCKETS = "INSERT INTO pulse_django_bucket AS bucket (scope, tokens, at)"
AGAIN = "ON CONFLICT (scope) DO UPDATE SET tokens = excluded.tokens, at = excluded.at"
SPENT = f""",
{LIMITERS},
spent AS (
    {INTO_BUCKETS}{SPENDING}    {AGAIN}
)"""


class Counted(NamedTuple):
    """The answer of ``COUNT``. Its first columns are settings of the transaction, which the claim reads."""

    at: str
    most: str  # jobs of all lanes
    takes: str  # jobs of each lane, as an array
    slots: str
    heaviest: str
    key_slots: str
    probe: str
    version: str  # of the rows of the limiter and of the queue's limit
    running: str  # how many runs each may have, as JSON: of the limiter, of a key, of the queue
    has_all_locks: bool
    low: int | None  # the smallest token of the runs of the limiter
    low_of_queue: int | None
    lows_of_keys: list[int | None]
    due_in: float | None  # seconds
    refusal_of_queue: str | None
    refusal: str | None
    must_start_at_once: bool


class LimitedClaiming(Statements):
    """The statements of a claim of jobs with a limit: lock, count, claim."""

    spent = SPENT  # the CTE of the claim that stores the spent tokens

    def send(
        self, lock: list[Any], count: list[Any], claim: str, params: list[Any], limiters: list[str]
    ) -> list[list[Row]]:
        return run_message(self.alias, [(LOCK, lock), (COUNT, count), (claim, [*params, *limiters])])


_LANES = ", pg_catalog.array_agg(DISTINCT lane) FILTER (WHERE NOT (has_slots AND has_room)) AS lanes"
LIMITED = Parts(
    in_line=_IN_LINE,
    has_room="fits_key AND weighs <= pg_catalog.current_setting('pulse.slots')::int",
    of_lane=", lane",
    started=AT,
    probe="pg_catalog.current_setting('pulse.probe')::boolean",
    columns=", line.is_left, line.lanes",
    granted=GRANTED.format(more=_LANES),
)
