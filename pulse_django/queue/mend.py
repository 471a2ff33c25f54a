"""Repair leases that Pulse cannot have granted."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from django.db import connections

from pulse_django import conf
from pulse_django.safe_logging import SafeLogger

from .database.job_queries import JobReader
from .database.transactions import run_alone, run_joined
from .reap import REAP_LIMIT
from .statements import UNSTORABLE
from .words.bounds import MAX_DELAY

logger = SafeLogger(__name__)

# For running jobs without a lease, and for leases that are too long because the server's clock was set back. A live
# holder loses nothing: its next heartbeat extends its lease. Its host may have another LEASE_TTL than this one.
_MEND = """
WITH wrong AS MATERIALIZED (
    SELECT id, locked_by, token, started_at, attempts, refunds, max_attempts, lease_until, lease_ttl
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[]) AND status::text = 'RUNNING' AND (
        locked_by IS NULL OR token IS NULL OR started_at IS NULL OR lease_until IS NULL
        OR lease_until > statement_timestamp() + COALESCE(lease_ttl, %s) + interval '1 second'
        OR attempts <= refunds OR attempts - refunds > max_attempts
    )
    ORDER BY id
    FOR NO KEY UPDATE
),
mended AS MATERIALIZED (
    SELECT
        id,
        COALESCE(token, pg_catalog.nextval('pulse_django_token')) AS token,
        COALESCE(started_at, clock_timestamp()) AS started_at,
        GREATEST(attempts, refunds + 1) AS attempts,
        GREATEST(max_attempts, attempts - refunds, 1) AS max_attempts,
        LEAST(lease_until, clock_timestamp() + COALESCE(lease_ttl, %s)) AS lease_until
    FROM wrong
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET locked_by = COALESCE(job.locked_by, 'nobody'),
        token = mended.token,
        started_at = mended.started_at,
        attempts = mended.attempts,
        max_attempts = mended.max_attempts,
        lease_until = mended.lease_until
    FROM mended
    WHERE job.id = mended.id AND job.status::text = 'RUNNING'
    RETURNING job.id
)
SELECT id FROM written
"""

# After the server's clock was set back: leases granted before end later than any lease that is granted now.
_SHORTEN = """
WITH long AS MATERIALIZED (
    SELECT id, lease_until, lease_ttl
    FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING'
        AND lease_until > statement_timestamp() + COALESCE(lease_ttl, %(longest)s) + interval '1 second'
    ORDER BY id
    LIMIT %(limit)s
    FOR NO KEY UPDATE
),
short AS MATERIALIZED (
    SELECT id, GREATEST(lease_until - %(step)s, clock_timestamp() + COALESCE(lease_ttl, %(ttl)s)) AS lease_until
    FROM long
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET lease_until = short.lease_until
    FROM short
    WHERE job.id = short.id AND job.status::text = 'RUNNING'
    RETURNING job.id
)
SELECT id FROM written
"""


def mend(jobs: JobReader, job_ids: Collection[int]) -> list[int]:
    """Repair leases that are missing or too long. Return the ids of the repaired jobs."""
    settings = conf.current()
    try:
        rows = run_joined(jobs.write_alias, _MEND, [sorted(job_ids), settings.longest_lease, settings.lease_ttl])
    except UNSTORABLE:
        if len(job_ids) <= 1 or connections[jobs.write_alias].in_atomic_block:
            raise
        mended = []
        for job_id in sorted(job_ids):
            try:
                mended += mend(jobs, [job_id])
            except UNSTORABLE:
                logger.exception("Repairing job %d failed", job_id)
        return mended
    return sorted(job_id for (job_id,) in rows)


def shorten_leases(jobs: JobReader, *, step: timedelta | None = None) -> int:
    """Shorten up to ``REAP_LIMIT`` leases by ``step``, by which the server's clock was set back. Return how many.

    Leave each lease at least one TTL. If ``step`` is not known, shorten leases that are too long to one TTL.

    No lease is taken from its holder, whose next heartbeat extends it.
    """
    settings = conf.current()
    longest = settings.longest_lease if step is None else settings.lease_ttl
    params = {"ttl": settings.lease_ttl, "longest": longest, "step": step or MAX_DELAY, "limit": REAP_LIMIT}
    return len(run_alone(jobs.write_alias, _SHORTEN, params))
