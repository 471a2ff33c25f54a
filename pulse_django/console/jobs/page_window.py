"""How many jobs a page of a filtered list reads: all of a small index, or a window of the primary key.

Few indexes exist, because each would be paid for by every claim, and none of them knows the task of a finished job.
A page that looked until it was full might read the whole table. So it stops, says where, and the next goes on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.models import Count, F, Max, Min

from pulse_django.console.shards import Shards
from pulse_django.models import Job
from pulse_django.store.job_queries import OUT_OF_ORDER
from pulse_django.store.querysets import JobQuerySet
from pulse_django.store.sql_functions import Fingerprint, InUtc
from pulse_django.store.transactions import Row, read_message
from pulse_django.words.states import CLAIMABLE, Status

from .searching import Searching

# Rows a page looks at: fewer make more clicks of a search, more take longer (50,000: 60 ms, and 150 ms with words).
WINDOW = 50_000
# Jobs of a small index that one page may read and sort: fewer hide old dead letters behind windows, more take longer.
FEW = 20_000
# Of jobs with an error, whose texts are read and compared.
WINDOW_OF_ERRORS = 20_000

# In the address.
STATUS, QUEUE, WORKER, ERROR, TAG, BATCH = "status__exact", "queue", "worker", "error", "tag", "batch"


_HOT = {Status.WAITING, *CLAIMABLE, Status.RUNNING, Status.DEAD_LETTERED}


class Ids(NamedTuple):
    """A range of ids."""

    low: int  # the first of them
    high: int  # the first beyond


def ids_between(
    alias: str, extent: Extent, since: datetime | None, until: datetime | None, *, is_part: bool = False
) -> Ids:
    """Return where the jobs lie that were created from an instant on, and before another.

    ``is_part``: the table holds other jobs beside those of this extent, and the ids of all do not rise with time.
    """
    low, high = extent.oldest_id, extent.newest_id + 1
    jobs, among = Job.objects.db_manager(alias), (low, high) if is_part else None
    if since is not None and since > extent.oldest_at:
        low = max(low, jobs.id_at(since, among) - OUT_OF_ORDER)
    if until is not None and until <= extent.newest_at:
        high = min(high, jobs.id_at(until, among) + OUT_OF_ORDER)
    return Ids(low, high)


def latest(alias: str, ids: Ids, errors: bool = False) -> Ids:
    """Return the range of the last jobs among these: one window of them. By rows, for there are gaps between ids.

    ``errors``: only jobs with an error are looked at.
    """
    jobs, most = _window(alias, ids, errors)
    rows = jobs.order_by("-pk")[:most].aggregate(low=Min("pk"), jobs=Count("*"))
    return Ids(rows["low"], ids.high) if rows["jobs"] == most else ids


def earliest(alias: str, ids: Ids, errors: bool = False) -> Ids:
    """Return the range of the first jobs among these."""
    jobs, most = _window(alias, ids, errors)
    rows = jobs.order_by("pk")[:most].aggregate(last=Max("pk"), jobs=Count("*"))
    return Ids(ids.low, rows["last"] + 1) if rows["jobs"] == most else ids


def _window(alias: str, ids: Ids, errors: bool) -> tuple[JobQuerySet, int]:
    jobs: JobQuerySet = Job.objects.using(alias).filter(pk__gte=ids.low, pk__lt=ids.high).values("pk")
    return (jobs.with_an_error(), WINDOW_OF_ERRORS) if errors else (jobs, WINDOW)


def are_few(alias: str, chosen: Mapping[str, str], searching: Searching | None = None) -> bool:
    """Say whether one small index holds all jobs that these filters let through, and how few they are."""
    jobs = None if searching is None else searching.by_index(Job.objects.using(alias).all())
    if jobs is None:
        jobs = _indexed(alias, chosen)
    return jobs is not None and jobs.values("pk")[: FEW + 1].count() <= FEW


def is_hot(chosen: Mapping[str, str]) -> bool:
    """Say whether these filters let nothing through that is in the partition of a day."""
    return WORKER in chosen or ERROR in chosen or chosen.get(STATUS) in _HOT


def _indexed(alias: str, chosen: Mapping[str, str]) -> JobQuerySet | None:
    """In the order of the index: a LIMIT alone may be answered from the table, whatever has to be skipped there."""
    jobs: JobQuerySet = Job.objects.using(alias).all()
    status = chosen.get(STATUS)
    if WORKER in chosen or status == Status.RUNNING:
        return jobs.running().order_by("id")
    if TAG in chosen:  # without an order: GIN has none. For a common tag the planner may read the table.
        return jobs.tagged(chosen[TAG])
    if BATCH in chosen:
        return jobs.in_batch(int(chosen[BATCH]))
    if ERROR in chosen:
        return same_error(jobs, chosen[ERROR]).order_by(InUtc("finished_at"))
    if status == Status.WAITING:
        return jobs.filter(status=status).order_by("id")
    if status == Status.DEAD_LETTERED:
        return jobs.dead_letters().order_by("finished_at", "id")
    if status == Status.CANCELLED:
        return jobs.filter(status=status).order_by("finished_at", "id")
    if status in CLAIMABLE:
        lanes = jobs.claimable().filter(queue=chosen[QUEUE]) if QUEUE in chosen else jobs.claimable()
        return lanes.order_by("queue", F("priority").desc(), F("ready").desc(), "lane_key", "next_run_at")
    return None


def same_error(jobs: JobQuerySet, fingerprint: str) -> JobQuerySet:
    """Return the dead letters among ``jobs`` whose errors have this in common."""
    return jobs.dead_letters().alias(fingerprint=Fingerprint("last_error")).filter(fingerprint=fingerprint)


# The oldest and the newest job of the table, read from the ends of the primary key.


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


# Where the list of jobs is read from: each shard, and in it the ids of each number apart.
#
# Ids rise with time only among those that one shard gave. Jobs that were moved keep theirs, so they are a part of
# their new shard that is read by itself.


@dataclass(frozen=True, slots=True)
class Source:
    """Jobs of one shard whose ids begin with one number."""

    alias: str
    number: int
    extent: Extent


def sources_of(everywhere: Shards) -> list[Source]:
    """Return those that hold jobs. Of a single database, all jobs are one source."""

    def sources(alias: str) -> list[Source]:
        ranges = everywhere.ranges
        found = extents_of(alias, list(ranges.values())) if everywhere.are_several else [extent_of(alias)]
        numbered = zip(ranges, found, strict=True)
        return [Source(alias, number, extent) for number, extent in numbered if extent is not None]

    return [source for some in everywhere.ask(sources).values() for source in some]
