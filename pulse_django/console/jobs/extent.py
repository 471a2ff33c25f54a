"""The oldest and the newest job of the table, read from the ends of the primary key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pulse_django.store.transactions import Row, read_message

# As seconds: a project without time zones would be given instants that do not say which they are.
_ENDS_AMONG = """
SELECT
    EXTRACT(epoch FROM statement_timestamp())::float8,
    oldest.id, EXTRACT(epoch FROM oldest.created_at)::float8,
    newest.id, EXTRACT(epoch FROM newest.created_at)::float8
FROM (SELECT id, created_at FROM pulse_django_job{among} ORDER BY id LIMIT 1) AS oldest
CROSS JOIN (SELECT id, created_at FROM pulse_django_job{among} ORDER BY id DESC LIMIT 1) AS newest
"""
_ENDS = _ENDS_AMONG.format(among="")
_ENDS_OF_RANGE = _ENDS_AMONG.format(among=" WHERE id >= %s AND id < %s")

# Apart from the jobs: the catalogue of a server and tables that are distributed are in no statement together.
_ESTIMATE = """
SELECT pg_catalog.sum(GREATEST(reltuples, 0))::bigint
FROM pg_catalog.pg_partition_tree('pulse_django_job'::regclass)
JOIN pg_class ON oid = relid::oid
WHERE isleaf
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    now: datetime  # by the server's clock
    estimate: int | None  # how many rows the planner believes in; None: it has not looked yet
    oldest_id: int
    oldest_at: datetime
    newest_id: int
    newest_at: datetime


def extent_of(alias: str) -> Extent | None:
    """Look at the first and the last job; None: there is none."""
    rows, [(estimate,)] = read_message(alias, [(_ENDS, ()), (_ESTIMATE, ())])
    return _extent(rows[0], estimate) if rows else None


def extents_of(alias: str, ranges: Sequence[tuple[int, int]]) -> list[Extent | None]:
    """Look at the first and the last job of each of these ranges of ids. The estimate is that of the whole table."""
    *ends, [(estimate,)] = read_message(alias, [*((_ENDS_OF_RANGE, one * 2) for one in ranges), (_ESTIMATE, ())])
    return [_extent(rows[0], estimate) if rows else None for rows in ends]


def together(extents: Mapping[str, Sequence[Extent]]) -> Extent | None:
    """Return the extent of the jobs of all shards, from those of each shard's ranges."""
    every = [one for some in extents.values() for one in some]
    if not every:
        return None
    oldest, newest = min(every, key=lambda one: one.oldest_at), max(every, key=lambda one: one.newest_at)
    estimates = [some[0].estimate for some in extents.values() if some and some[0].estimate is not None]
    return replace(
        newest, oldest_id=oldest.oldest_id, oldest_at=oldest.oldest_at, estimate=sum(estimates) if estimates else None
    )


def _extent(row: Row, estimate: Any) -> Extent:
    now, oldest_id, oldest_at, newest_id, newest_at = row
    return Extent(
        now=_instant(now),
        estimate=int(estimate) if estimate > 0 else None,
        oldest_id=oldest_id,
        oldest_at=_instant(oldest_at),
        newest_id=newest_id,
        newest_at=_instant(newest_at),
    )


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
