"""Bound the number of jobs that a page of a filtered list reads: a small index, or a window of the primary key.

There are few indexes, because each makes every claim slower, and none of them has the task of a finished job. A page
that searched until it was full might read the whole table. So it stops, shows where, and the next page continues.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

from django.db.models import Count, F, Max, Min

from pulse_django.models import Job
from pulse_django.queue.database.job_queries import OUT_OF_ORDER
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.sql_functions import Fingerprint, InUtc
from pulse_django.queue.database.transactions import read_message
from pulse_django.queue.words.job_ids import shard_number_of
from pulse_django.queue.words.states import CLAIMABLE, Status
from pulse_django.workflows.batch_verbs import members_of

from .searching import Searching

# Rows that a page reads. With fewer, a search needs more clicks. More take longer (50,000: 60 ms; 150 ms with words).
WINDOW = 50_000
# Jobs of a small index that a page reads and sorts. With fewer, old dead letters need more clicks. More take longer.
FEW = 20_000
# The window for jobs with an error, whose texts are read and compared.
WINDOW_OF_ERRORS = 20_000

# Parameters in the address.
STATUS, QUEUE, WORKER, ERROR, TAG, BATCH = "status__exact", "queue", "worker", "error", "tag", "batch"


_HOT = {Status.WAITING, *CLAIMABLE, Status.RUNNING, Status.DEAD_LETTERED}


class Ids(NamedTuple):
    """A range of ids."""

    low: int  # the first id
    high: int  # the first id after the range


def ids_between(alias: str, extent: Extent, since: datetime | None) -> Ids:
    """Return the range of ids of jobs that were created from ``since`` on."""
    low, high = extent.oldest_id, extent.newest_id + 1
    jobs = Job.objects.db_manager(alias)
    if extent.is_mixed:
        return Ids(low, high)
    if since is not None and since > extent.oldest_at:
        low = max(low, jobs.id_at(since) - OUT_OF_ORDER)
    return Ids(low, high)


def latest(alias: str, ids: Ids, errors: bool = False) -> Ids:
    """Return the range of the last jobs among these, one window of rows: there are gaps between ids.

    With ``errors``, only jobs with an error count.
    """
    jobs, most = _window(alias, ids, errors)
    rows = jobs.order_by("-pk")[:most].aggregate(low=Min("pk"), jobs=Count("*"))
    return Ids(rows["low"], ids.high) if rows["jobs"] == most else ids


def earliest(alias: str, ids: Ids, errors: bool = False) -> Ids:
    """Return the range of the first jobs among these."""
    jobs, most = _window(alias, ids, errors)
    rows = jobs.order_by("pk")[:most].aggregate(last=Max("pk"), jobs=Count("*"))
    return Ids(ids.low, rows["last"] + 1) if rows["jobs"] == most else ids


def _window(alias: str, ids: Ids, errors: bool) -> tuple[JobQuerySet[Job], int]:
    jobs: JobQuerySet[Job] = Job.objects.using(alias).filter(pk__gte=ids.low, pk__lt=ids.high).values("pk")
    return (jobs.with_an_error(), WINDOW_OF_ERRORS) if errors else (jobs, WINDOW)


def are_few(alias: str, chosen: Mapping[str, str], searching: Searching | None = None) -> bool:
    """Return whether one index has all jobs that match these filters, and at most ``FEW`` of them."""
    jobs = None if searching is None else searching.by_index(Job.objects.using(alias).all())
    if jobs is None:
        jobs = _indexed(alias, chosen)
    return jobs is not None and jobs.values("pk")[: FEW + 1].count() <= FEW


def is_hot(chosen: Mapping[str, str]) -> bool:
    """Return whether no job in the partition of a day can match these filters."""
    return WORKER in chosen or ERROR in chosen or chosen.get(STATUS) in _HOT


def _indexed(alias: str, chosen: Mapping[str, str]) -> JobQuerySet[Job] | None:
    """Return the jobs in the order of their index. A LIMIT without it may be answered by a scan of the table."""
    jobs: JobQuerySet[Job] = Job.objects.using(alias).all()
    status = chosen.get(STATUS)
    if WORKER in chosen or status == Status.RUNNING:
        return jobs.running().order_by("id")
    if TAG in chosen:  # GIN has no order. For a common tag the planner may read the table.
        return jobs.tagged(chosen[TAG])
    if BATCH in chosen:
        return members_of(jobs, int(chosen[BATCH]))
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


def same_error(jobs: JobQuerySet[Job], fingerprint: str) -> JobQuerySet[Any]:
    """Return the dead letters among ``jobs`` whose errors have this fingerprint."""
    return jobs.dead_letters().alias(fingerprint=Fingerprint("last_error")).filter(fingerprint=fingerprint)


# The oldest and the newest job of the table, read from the ends of the primary key.


# Seconds are unambiguous. Without USE_TZ, Django would return instants without a time zone.
_ENDS = """
SELECT
    EXTRACT(epoch FROM statement_timestamp())::float8,
    oldest.id, EXTRACT(epoch FROM oldest.created_at)::float8,
    newest.id, EXTRACT(epoch FROM newest.created_at)::float8
FROM (SELECT id, created_at FROM pulse_django_job ORDER BY id LIMIT 1) AS oldest
CROSS JOIN (SELECT id, created_at FROM pulse_django_job ORDER BY id DESC LIMIT 1) AS newest
"""

# A separate statement: a cluster does not combine the system catalog and distributed tables in one statement.
_ESTIMATE = """
SELECT pg_catalog.sum(GREATEST(reltuples, 0))::bigint
FROM pg_catalog.pg_partition_tree('pulse_django_job'::regclass)
JOIN pg_class ON oid = relid::oid
WHERE isleaf
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    now: datetime  # by the server's clock
    estimate: int | None  # the planner's number of rows; None before the first analyze
    oldest_id: int
    oldest_at: datetime
    newest_id: int
    newest_at: datetime

    @property
    def is_mixed(self) -> bool:
        """Return whether jobs of another shard were moved here. They keep their ids, so ids do not rise with time."""
        return shard_number_of(self.oldest_id) != shard_number_of(self.newest_id)


def extent_of(alias: str) -> Extent | None:
    """Read the first and the last job. Return None if there are no jobs."""
    rows, [(estimate,)] = read_message(alias, [(_ENDS, ()), (_ESTIMATE, ())])
    if not rows:
        return None
    now, oldest_id, oldest_at, newest_id, newest_at = rows[0]
    found = Extent(
        now=_instant(now),
        estimate=int(estimate) if estimate > 0 else None,
        oldest_id=oldest_id,
        oldest_at=_instant(oldest_at),
        newest_id=newest_id,
        newest_at=_instant(newest_at),
    )
    if not found.is_mixed:
        return found
    return replace(found, oldest_at=min(found.oldest_at, found.newest_at), newest_at=found.now)


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
