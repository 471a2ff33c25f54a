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
from typing import NamedTuple

from pulse_django.store.job_queries import JobReader
from pulse_django.store.lane_queries import IS_PAUSED
from pulse_django.store.transactions import refuse_callers_transaction, run_message
from pulse_django.words.identity import Identity
from pulse_django.words.lane_keys import limiter_of_queue
from pulse_django.words.lanes import Lane
from pulse_django.words.leases import Claim

from .claim import FROM_THE_FIRST, claim_of, claim_pick, claiming
from .limit_counts import AT, COUNT, LOCK, SPENT

# Of one claim: a lock each. PostgreSQL's table of locks has room for 64 of each connection.
MOST_LANES = 60
NO_MARKS: Mapping[str, int] = MappingProxyType({})
NOTHING_SAID: Mapping[Lane, int] = MappingProxyType({})

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


class LimitedClaim(NamedTuple):
    """What one limiter granted."""

    claims: list[Claim]
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
    queue: str | None = None,
    marks: Mapping[str, int] = NO_MARKS,
) -> LimitedClaim:
    """Grant leases on up to ``limit`` due jobs of one limiter: of each of these lanes as many as ``takes`` says.

    Never more than the limiter allows, however many claim at once. ``queue``: all lanes are of that queue, and its
    limit holds as well. An empty ``limiter``: there is only that. ``marks`` are those of the claims before.
    """
    refuse_callers_transaction(jobs.write_alias)
    by_key: dict[str, Lane] = {}
    for lane in lanes:
        if takes.get(lane) and len(by_key) < MOST_LANES:
            by_key.setdefault(lane.key, lane)  # a key that waits in two lanes would be granted twice
    if not by_key or limit < 1:
        return LimitedClaim([])
    keys, visited = list(by_key), list(by_key.values())
    whole = "" if queue is None else limiter_of_queue(queue)  # there is no row of an empty name
    holder = identity.mint_holder()
    pick, pick_params = claim_pick(jobs.model, jobs.write_alias)
    queues, priorities = [lane.queue for lane in visited], [lane.priority for lane in visited]
    sql, values = claiming(
        _PICK.format(pick=pick),
        [queues, priorities, keys, [FROM_THE_FIRST] * len(keys), *pick_params],
        holder,
        started=AT,
        probe="pg_catalog.current_setting('pulse.probe')::boolean",
        spent=SPENT,
    )
    count = [
        limiter, whole, limiter, marks.get(limiter, 0), queue or "", marks.get(whole, 0), keys,
        [takes[lane] for lane in visited], [marks.get(key, 0) for key in keys], limit,
    ]  # fmt: skip
    [[_, locked]], [counted], rows = run_message(
        jobs.write_alias,
        [(LOCK, [limiter, whole, [whole, limiter, *keys]]), (COUNT, count), (sql, [*values, limiter, whole])],
    )
    claims = [claim_of(row, holder) for row in rows]
    _, most, allowed, _, version, numbers, is_mine, low, low_of_queue, lows, due_in, of_queue, why = counted
    are_counted = json.loads(numbers)
    lowest = dict(zip(keys, lows, strict=True)) if are_counted["key"] is not None else {}
    lowest |= {limiter: low} if are_counted["limiter"] is not None else {}
    lowest |= {whole: low_of_queue} if are_counted["queue"] is not None else {}
    found = _marks({scope: lowest[scope] for scope in locked if scope in lowest}, (limiter, whole), claims)
    each = dict(zip(visited, map(int, allowed.strip("{}").split(",")), strict=True))
    refusal = (whole, of_queue) if of_queue else (limiter, why) if why else None
    said = each if len(claims) < int(most) else NOTHING_SAID
    return LimitedClaim(claims, said, not is_mine, due_in, found, version, None if claims else refusal)


def _marks(lowest: Mapping[str, int | None], shared: tuple[str, str], claims: Sequence[Claim]) -> dict[str, int]:
    """Return the smallest token of each scope that was locked: of its runs then, or else of those that begin now.

    ``shared`` are the scopes of all these claims.
    """
    marks = {scope: low for scope, low in lowest.items() if low is not None}
    for claim in reversed(claims):
        for scope in {*shared, claim.lane_key} & lowest.keys() - marks.keys():
            marks[scope] = min(one.token for one in claims if scope in (*shared, one.lane_key))
    return marks
