"""Grant leases on jobs with a limit: a lease is the slot, and nothing else is acquired or released.

Three statements of one message: lock, count, claim. One cannot do it: its snapshot is taken before it has the lock, so
it would count without the leases that the lock's holder before it has granted.

Locks are tried and never waited for. They end with the transaction, which the server runs without the worker: one that
dies or freezes holds none.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from django.db import connections

from pulse_django.store.citus import is_for_citus
from pulse_django.store.job_queries import JobReader
from pulse_django.store.lane_queries import IS_PAUSED
from pulse_django.store.transactions import Row, joined, refuse_callers_transaction, run_joined, run_message
from pulse_django.words.identity import Identity
from pulse_django.words.lane_keys import limiter_of_queue
from pulse_django.words.lanes import Lane
from pulse_django.words.leases import Claim

from .claim import FROM_THE_FIRST, GRANTED, Claims, Left, Slots, claim_pick, claiming, claims_of, unless_paused
from .limit_counts import AT, COUNT, LOCK, SAID, SPEND, SPENT, SPENT_BY, spelt_out

# Of one claim: a lock each. PostgreSQL's table of locks has room for 64 of each connection.
MOST_LANES = 60
NO_MARKS: Mapping[str, int] = MappingProxyType({})
NOTHING_SAID: Mapping[Lane, int] = MappingProxyType({})

_PICK = f"""
    SELECT pick.id, pick.bytes, pick.weight, pick.lease_ttl, pick.timeout, lane.place
    FROM ROWS FROM (
        pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::smallint[]), pg_catalog.unnest(%s::text[]),
        pg_catalog.unnest(pg_catalog.current_setting('pulse.takes')::int[]), pg_catalog.unnest(%s::float8[])
    ) WITH ORDINALITY AS lane (queue, priority, key, take, since, place)
    CROSS JOIN LATERAL ({{pick}}) AS pick
    WHERE {{unless_paused}}lane.take > 0 AND lane.queue <> ALL (ARRAY(
        SELECT name::text FROM pulse_django_queue WHERE {IS_PAUSED}
    ))
    LIMIT pg_catalog.current_setting('pulse.most')::int
"""  # noqa: S608 - made of constants

# What is too heavy for its key is left out before the others are summed up. Jobs behind it in its lane wait with it.
_IN_LINE = """of_lanes AS (
    SELECT
        id, bytes, weight, lease_ttl, timeout, lane, line_place,
        weighs <= (pg_catalog.current_setting('pulse.key_slots')::int[])[lane] AS fits_key
    FROM (
        SELECT
            id, bytes, weight, lease_ttl, timeout, lane, line_place,
            pg_catalog.sum(weight) OVER (PARTITION BY lane ORDER BY line_place) AS weighs
        FROM (
            SELECT id, bytes, weight, lease_ttl, timeout, place AS lane, row_number() OVER () AS line_place
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
        pg_catalog.count(*) FILTER (WHERE fits_key) OVER line AS place
    FROM of_lanes
    WINDOW line AS (ORDER BY line_place)
)"""
_HAS_ROOM = "fits_key AND weighs <= pg_catalog.current_setting('pulse.slots')::int"
_LANES = ", pg_catalog.array_agg(DISTINCT lane) FILTER (WHERE NOT (has_slots AND has_room)) AS lanes"
_LEFT = Left(of_lane=", lane", columns=", line.is_left, line.lanes", granted=GRANTED.format(more=_LANES))


# What is heavier than the limit since that was lowered is passed by: it cannot start, whatever ends.
HEAVIEST = "pg_catalog.current_setting('pulse.heaviest')::int"


class LimitedClaim(NamedTuple):
    """What one limiter granted."""

    claims: Claims
    allowed: Mapping[Lane, int] = NOTHING_SAID  # of each lane; nothing if they were fewer in all
    is_contended: bool = False  # another claimer had a lock: look again in a moment
    due_in: float | None = None  # seconds until something may start again, if only time stands in the way
    marks: Mapping[str, int] = NO_MARKS  # of the scopes that were counted, for the next claim
    version: str | None = None  # of the limiter's row: another one, other numbers
    refusal: tuple[str, str] | None = None  # the limit that let nothing start, and why


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
    tasks_may_be_paused: bool = True,
) -> LimitedClaim:
    """Grant leases on up to ``limit`` due jobs of one limiter: of each of these lanes as many as ``takes`` says.

    Never more than the limiter allows, however many claim at once. ``queue``: all lanes are of that queue, and its
    limit holds as well. An empty ``limiter``: there is only that. ``marks`` are those of the claims before.
    ``slots`` and ``tasks_may_be_paused`` are as in ``claim()``.
    """
    refuse_callers_transaction(jobs.write_alias)
    by_key: dict[str, Lane] = {}
    for lane in lanes:
        if takes.get(lane) and len(by_key) < MOST_LANES:
            by_key.setdefault(lane.key, lane)  # a key that waits in two lanes would be granted twice
    if not by_key or limit < 1:
        return LimitedClaim(Claims())
    keys, visited = list(by_key), list(by_key.values())
    whole = "" if queue is None else limiter_of_queue(queue)  # there is no row of an empty name
    holder = identity.mint_holder()
    pick, pick_params = claim_pick(
        jobs.model, jobs.write_alias, heaviest=HEAVIEST, leave_out_paused=tasks_may_be_paused
    )
    queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
    sql, values = claiming(
        _PICK.format(pick=pick, unless_paused=unless_paused(tasks_may_be_paused)),
        [queues, priorities, keys, [FROM_THE_FIRST] * len(keys), *pick_params],
        holder,
        slots or Slots(limit, limit),
        in_line=_IN_LINE,
        has_room=_HAS_ROOM,
        left=_LEFT,
        started=AT,
        probe="pg_catalog.current_setting('pulse.probe')::boolean",
        spent="" if (apart := is_for_citus(connections[jobs.write_alias])) else SPENT,
    )
    count = [
        limiter, whole, limiter, marks.get(limiter, 0), queue or "", marks.get(whole, 0), keys,
        [takes[lane] for lane in visited], [marks.get(key, 0) for key in keys], limit,
    ]  # fmt: skip
    lock, limiters = [limiter, whole, [whole, limiter, *keys]], [limiter, whole]
    if apart:
        [[_, locked]], [counted], rows = _one_by_one(jobs.write_alias, lock, count, sql, values, limiters)
    else:
        [[_, locked]], [counted], rows = run_message(
            jobs.write_alias, [(LOCK, lock), (COUNT, count), (sql, [*values, *limiters])]
        )
    claims = claims_of(rows, holder)
    too_heavy = {visited[place - 1] for place in rows[0][-1] or ()}
    _, most, allowed, _, _, _, _, version, numbers, is_mine, low, low_of_queue, lows, due_in, of_queue, why = counted
    are_counted = json.loads(numbers)
    lowest = dict(zip(keys, lows, strict=True)) if are_counted["key"] is not None else {}
    lowest |= {limiter: low} if are_counted["limiter"] is not None else {}
    lowest |= {whole: low_of_queue} if are_counted["queue"] is not None else {}
    found = _marks({scope: lowest[scope] for scope in locked if scope in lowest}, (limiter, whole), claims)
    each = dict(zip(visited, map(int, allowed.strip("{}").split(",")), strict=True))
    said = {} if len(claims) >= int(most) else {lane: n for lane, n in each.items() if lane not in too_heavy}
    refusal = None
    if not claims and not claims.is_left:
        refusal = _refusal((whole, of_queue), (limiter, why or ("full" if too_heavy else None)))
    return LimitedClaim(claims, said, not is_mine, due_in, found, version, refusal)


def _one_by_one(
    alias: str, lock: list[Any], count: list[Any], claim: str, params: list[Any], limiters: list[str]
) -> list[list[Row]]:
    """Do so on Citus: a message for each statement, and the next one names what this one said."""
    with joined(alias):
        locked = run_joined(alias, LOCK, lock)
        counted = run_joined(alias, spelt_out(COUNT, {"got": locked[0][0]}), count)
        said = dict(zip(SAID, counted[0], strict=False))
        rows = run_joined(alias, spelt_out(claim, said), params)
        if lanes := [claim.lane_key for claim in claims_of(rows, "")]:
            spent = run_joined(alias, spelt_out(SPENT_BY, said), [lanes, *limiters])
            if spent:
                run_joined(alias, SPEND, [list(column) for column in zip(*spent, strict=True)])
        return [locked, counted, rows]


def _refusal(*found: tuple[str, str | None]) -> tuple[str, str] | None:
    """Return the first limit that has a reason."""
    return next(((limiter, reason) for limiter, reason in found if reason), None)


def _marks(lowest: Mapping[str, int | None], shared: tuple[str, str], claims: Sequence[Claim]) -> dict[str, int]:
    """Return the smallest token of each scope that was locked: of its runs then, or else of those that begin now.

    ``shared`` are the scopes of all these claims.
    """
    marks = {scope: low for scope, low in lowest.items() if low is not None}
    for claim in reversed(claims):
        for scope in {*shared, claim.lane_key} & lowest.keys() - marks.keys():
            marks[scope] = min(one.token for one in claims if scope in (*shared, one.lane_key))
    return marks
