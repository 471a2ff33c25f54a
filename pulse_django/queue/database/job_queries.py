"""Queries of ``Job.objects`` that the ORM cannot express in one query."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from django.db import models, router

from pulse_django.queue.words.leases import Lease
from pulse_django.queue.words.outcomes import UNKNOWN_TASK

from .constraints import IS_CLAIMABLE
from .lane_queries import IN_LANE, IS_SET_ASIDE, LANES_CTE, LaneReader
from .querysets import JobQuerySet
from .transactions import run_joined

if TYPE_CHECKING:
    from ..job import JobRow


class ServerClock(NamedTuple):
    """The start and the uptime of the server, by its own clock."""

    started_at: float  # in seconds since 1970; it changes when the server restarts
    up_for: float  # seconds; negative if the clock was set back to before the start


class Depth(NamedTuple):
    """How many jobs wait in a queue."""

    queue: str
    due: int  # jobs that are due
    later: int  # jobs that are not due, or are set aside because their task is paused
    overdue: float | None  # seconds since the first job was due
    is_more: bool  # there are more jobs than were counted


def is_expired(row: str = "", *, now: str = "statement_timestamp()") -> str:
    """Return the SQL condition that a job has not started in time. ``row`` is a prefix for each column: ``job.``.

    The first three conditions are those of the index, so that it can be used.
    """
    return (
        f"{row}attempts = 0 AND {row}expires_at IS NOT NULL AND {row}status::text = 'PENDING' "
        f"AND {row}expires_at <= {now}"
    )


IS_EXPIRED = is_expired()
ARE_EXPIRED = f"EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE {IS_EXPIRED})"  # noqa: S608 - made of constants
# Lanes are counted from the claim index, each up to its share of the total. Jobs that are set aside are counted once,
# from their own index: a planner that expects none would read all of them for each lane.
_DEPTHS = f"""{LANES_CTE},
share (most) AS MATERIALIZED (SELECT GREATEST(10, %(in_all)s / GREATEST(count(*), 1)) FROM lane),
aside AS MATERIALIZED (
    SELECT queue, count(*) AS jobs
    FROM (
        SELECT queue FROM pulse_django_job_hot WHERE {IS_SET_ASIDE} ORDER BY task, queue, id LIMIT %(in_all)s + 1
    ) AS first
    GROUP BY queue
)
SELECT
    lane.queue, pg_catalog.sum(due.jobs)::bigint,
    pg_catalog.sum(later.jobs)::bigint
        + COALESCE((SELECT jobs FROM aside WHERE aside.queue::text = lane.queue::text), 0),
    EXTRACT(epoch FROM statement_timestamp() - pg_catalog.min(due.since))::float8,
    pg_catalog.bool_or(GREATEST(due.jobs, later.jobs) > share.most)
        OR COALESCE((SELECT pg_catalog.sum(jobs)::bigint FROM aside) > %(in_all)s, false)
FROM lane
CROSS JOIN share
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs, pg_catalog.min(next_run_at) AS since
    FROM (
        SELECT next_run_at
        FROM pulse_django_job_hot
        WHERE {IN_LANE}
            AND next_run_at <= statement_timestamp()
        ORDER BY next_run_at
        LIMIT (SELECT most + 1 FROM share)
    ) AS first
) AS due
CROSS JOIN LATERAL (
    SELECT count(*) AS jobs
    FROM (
        (
            SELECT 1
            FROM pulse_django_job_hot
            WHERE {IN_LANE}
                AND next_run_at > statement_timestamp()
            ORDER BY next_run_at
            LIMIT (SELECT most + 1 FROM share)
        )
        UNION ALL
        (
            SELECT 1
            FROM pulse_django_job_hot
            WHERE {IS_CLAIMABLE} AND queue::text = lane.queue::text AND priority = lane.priority AND NOT ready
                AND lane.lane_key::text = ''
            LIMIT (SELECT most + 1 FROM share)
        )
    ) AS first
) AS later
GROUP BY lane.queue
ORDER BY lane.queue
"""  # noqa: S608 - made of constants

SERVER_CLOCK = """
SELECT EXTRACT(epoch FROM start)::float8, EXTRACT(epoch FROM clock_timestamp() - start)::float8
FROM pg_postmaster_start_time() AS start
"""

FAMILY = """
WITH RECURSIVE family (id) AS (
    SELECT pg_catalog.unnest(%s::bigint[])
    UNION
    SELECT job.id FROM family JOIN pulse_django_job AS job ON job.parent_id = family.id
)
SELECT id FROM family
"""

# Ids grow with the time at which rows are written. So a binary search finds the id at an instant with about twenty
# probes of the primary key, whatever the number of rows, and needs no index on the instant.
_ID_AT = """
WITH RECURSIVE search (low, high) AS (
    {ends}
    UNION ALL
    SELECT
        CASE WHEN probe.is_before THEN probe.id + 1 ELSE search.low END,
        CASE WHEN probe.is_before THEN search.high ELSE half.id END
    FROM search
    CROSS JOIN LATERAL (SELECT (search.low + search.high) / 2) AS half (id)
    CROSS JOIN LATERAL (
        SELECT id, id < search.high AND {column} < %s AS is_before FROM {table} WHERE id >= half.id ORDER BY id LIMIT 1
    ) AS probe
    WHERE search.low < search.high
)
SELECT pg_catalog.min(high) FROM search
"""
_ALL_IDS = "SELECT pg_catalog.min(id), pg_catalog.max(id) + 1 FROM {table}"
_THESE_IDS = f"{_ALL_IDS} WHERE id >= %s AND id < %s"  # if the table also has rows from another shard
# Rows that were written at the same time may have ids and instants in different orders.
OUT_OF_ORDER = 1_000

# Since its last run on a worker that knew its task, or since it was given up and retried.
PUT_BACK_SINCE = """
SELECT pg_catalog.min(started_at) AS first
FROM pulse_django_attempt
WHERE job_id = {job} AND number > COALESCE((
    SELECT pg_catalog.max(number)
    FROM pulse_django_attempt
    WHERE job_id = {job} AND NOT (outcome::text = 'RELEASED' AND pg_catalog.starts_with(message, %(unknown)s))
), 0)
"""
_PUT_BACK_FOR = f"SELECT clock_timestamp() - met.first FROM ({PUT_BACK_SINCE.format(job='%(job)s')}) AS met"  # noqa: S608 - made of constants


class JobReader(LaneReader, models.Manager.from_queryset(JobQuerySet)):  # type: ignore[misc]  # made at run time
    """Queries of ``Job.objects`` that querysets cannot express."""

    def depths(self, in_all: int) -> list[Depth]:
        """Return how many jobs wait in each queue. Count at most about ``in_all`` jobs."""
        return depths(self.write_alias, in_all)

    def held_by(self, holder_prefix: str) -> list[JobRow]:
        """Return the running jobs whose holder begins with this text, as for one process or one start of a worker."""
        held = self.using(self.write_alias).running().filter(locked_by__startswith=holder_prefix).order_by("id")
        return list(held.defer("args", "kwargs", "progress", "on_dead"))  # long, and not needed to end their runs

    def leases_of(self, holder: str) -> list[Lease]:
        """Return the leases that one claim was granted and still holds."""
        held = self.using(self.write_alias).running().filter(locked_by=holder).order_by("id")
        return [Lease(job_id, holder, attempt) for job_id, attempt in held.values_list("id", "attempts")]

    def server_clock(self) -> ServerClock:
        """Return the start and the uptime of the server, by its own clock."""
        return ServerClock(*run_joined(self.write_alias, SERVER_CLOCK, [])[0])

    def family(self, job_ids: Collection[int]) -> list[int]:
        """Return these jobs and all their descendants: the jobs that their handlers enqueued, and so on."""
        return [job_id for (job_id,) in run_joined(self.write_alias, FAMILY, [sorted(job_ids)])]

    def put_back_for(self, job_id: int) -> timedelta | None:
        """Return how long workers have only put the job back, because none knew its task. None: they have not."""
        params = {"job": job_id, "unknown": UNKNOWN_TASK}
        waited: timedelta | None = run_joined(self.write_alias, _PUT_BACK_FOR, params)[0][0]
        return waited

    def id_at(self, instant: datetime) -> int:
        """Return the approximate id of the first job created at or after ``instant``, within ``OUT_OF_ORDER``."""
        return id_at(self.write_alias, "pulse_django_job", "created_at", instant)

    @property
    def write_alias(self) -> str:
        if hasattr(self, "instance"):  # job.children: the statements here would ignore its filter
            raise TypeError("Use Job.objects for this, not a related manager.")
        alias: str = self._db or router.db_for_write(self.model)
        return alias


def depths(alias: str, in_all: int) -> list[Depth]:
    return [Depth(*row) for row in run_joined(alias, _DEPTHS, {"in_all": in_all})]


def id_at(alias: str, table: str, column: str, instant: datetime, among: tuple[int, int] | None = None) -> int:
    """Return the first id whose row was written at or after ``instant``, or the last id plus one."""
    ends = _ALL_IDS if among is None else _THESE_IDS
    sql = _ID_AT.format(table=table, column=column, ends=ends.format(table=table))
    [(found,)] = run_joined(alias, sql, [*(among or ()), instant])
    return found or 0
