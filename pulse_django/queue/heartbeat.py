"""Extend the leases of a host, and report which of them are lost."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

from pulse_django import conf
from pulse_django.safe_logging import SafeLogger

from .database.job_queries import JobReader
from .database.transactions import Row, run_alone, run_joined
from .statements import UNSTORABLE, keys_of
from .words.leases import Lease
from .words.verb_results import Beat

logger = SafeLogger(__name__)

# One statement for all leases of a host. It skips locked rows, because waiting for one of them would delay the
# heartbeats of all others.
_HEARTBEAT = """
WITH held AS MATERIALIZED (
    SELECT id, holder, attempt, progress::jsonb
    FROM pg_catalog.json_to_recordset(%s::json) AS held (id bigint, holder text, attempt int, progress text)
),
locked AS MATERIALIZED (
    SELECT job.id, job.lease_until, job.lease_ttl, job.progress_at, held.progress
    FROM held
    JOIN pulse_django_job_hot AS job
        ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt
    ORDER BY job.id
    FOR NO KEY UPDATE OF job SKIP LOCKED
),
beat AS MATERIALIZED (
    SELECT
        id, progress,
        GREATEST(lease_until, clock_timestamp() + COALESCE(lease_ttl, %s)) AS lease_until,
        CASE WHEN progress IS NULL THEN progress_at ELSE clock_timestamp() END AS progress_at
    FROM locked
),
beaten AS (
    UPDATE pulse_django_job_hot AS job
    SET lease_until = beat.lease_until,
        progress = COALESCE(beat.progress, job.progress),
        progress_at = beat.progress_at
    FROM beat
    WHERE job.id = beat.id AND job.locked_by IS NOT NULL
    RETURNING job.id, job.locked_by, job.attempts, job.cancel_requested_at
)
SELECT id, locked_by, attempts, cancel_requested_at IS NOT NULL FROM beaten
"""

# Sent only for leases that the heartbeat did not extend: a lease whose fence still holds was skipped, and is not lost.
_STILL_HELD = """
SELECT job.id, job.locked_by, job.attempts
FROM pg_catalog.json_to_recordset(%s::json) AS held (id bigint, holder text, attempt int)
JOIN pulse_django_job_hot AS job
    ON job.id = held.id AND job.locked_by::text = held.holder AND job.attempts = held.attempt
"""


def heartbeat(jobs: JobReader, leases: Collection[Lease], progress: Mapping[Lease, str] | None = None) -> Beat:
    """Extend these leases by one TTL each, save progress (as JSON) with them, and return which are still held."""
    if not leases:
        return Beat(alive=frozenset(), lost=frozenset(), skipped=frozenset(), cancelled=frozenset())
    rows = _beat(jobs, leases, progress or {})
    asked_to_stop = {Lease(*row[:3]): row[3] for row in rows}
    alive = frozenset(asked_to_stop)
    missing = frozenset(leases) - alive
    skipped = still_held(jobs, missing) if missing else frozenset()
    cancelled = frozenset(lease for lease, asked in asked_to_stop.items() if asked)
    return Beat(alive=alive, lost=missing - skipped, skipped=skipped, cancelled=cancelled)


def _beat(jobs: JobReader, leases: Collection[Lease], progress: Mapping[Lease, str]) -> list[Row]:
    held = [keys_of(lease) | {"progress": progress.get(lease)} for lease in leases]
    try:
        return run_alone(jobs.write_alias, _HEARTBEAT, [json.dumps(held), conf.current().lease_ttl])
    except UNSTORABLE:
        if not progress:
            raise
        logger.exception("Saving the progress of %d jobs failed; their leases are extended without it", len(progress))
        return _beat(jobs, leases, {})


def still_held(jobs: JobReader, leases: Collection[Lease]) -> frozenset[Lease]:
    rows = run_joined(jobs.write_alias, _STILL_HELD, [json.dumps([keys_of(lease) for lease in leases])])
    return frozenset(Lease(*row) for row in rows)
