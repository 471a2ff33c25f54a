"""Queries that several conditions use: the latest ended jobs, due queues, live workers, recent failures.

A condition uses a shared query like a table in its SQL. The statement that checks all conditions runs each query once.
This is faster, because PostgreSQL plans a scan of every partition for each reference to the table of jobs.
"""

from __future__ import annotations

import re

from pulse_django.pauses.statements import IS_IN_FORCE, IS_OF_QUEUE, first_that_can_start
from pulse_django.queue.database.lane_queries import IN_LANE, LANES_CTE

from .failures import ENDED_LATELY

# A query may use the queries above it.
_SHARED = {
    # The message of a run that was put back has the reason. Other messages can be long, and no condition reads them.
    "latest_attempts": """
    SELECT
        job_id, number, token, outcome, started_at, finished_at,
        CASE outcome::text WHEN 'RELEASED' THEN message END AS message
    FROM pulse_django_attempt
    ORDER BY id DESC
    LIMIT %(sample)s""",
    "latest_completed": """
    SELECT id, task, queue, status, attempts, created_at, started_at, finished_at, completed_by, completed_token
    FROM pulse_django_job
    WHERE status::text = 'COMPLETED'
    ORDER BY finished_at DESC, id DESC
    LIMIT %(sample)s""",
    "latest_cancelled": """
    SELECT id, task, queue, status, attempts, created_at, started_at, finished_at
    FROM pulse_django_job
    WHERE status::text = 'CANCELLED'
    ORDER BY finished_at DESC, id DESC
    LIMIT %(sample)s""",
    "waiting_lanes": f"""
    {LANES_CTE}
    SELECT queue, priority, lane_key FROM lane""",
    # Queues with due jobs that can be claimed.
    "due_queues": f"""
    SELECT
        lane.queue, pg_catalog.min(earliest.next_run_at) AS since,
        pg_catalog.min(earliest.next_run_at) FILTER (
            WHERE pg_catalog.split_part(lane.lane_key::text, ':', 1) = ''
        ) AS unlimited_since  -- of jobs that no limit keeps waiting
    FROM waiting_lanes AS lane
    CROSS JOIN LATERAL ({first_that_can_start(IN_LANE)}) AS earliest
    WHERE earliest.next_run_at <= statement_timestamp()
    GROUP BY lane.queue""",
    "paused_queues": f"""
    SELECT queue AS name, paused_at, paused_until, reason
    FROM pulse_django_pause
    WHERE {IS_OF_QUEUE} AND {IS_IN_FORCE}""",
    "live_workers": """
    -- One that has only just started may not have said yet how busy it is.
    SELECT
        id, queues, tasks,
        CASE
            WHEN started_at > statement_timestamp() - %(silence)s THEN 0
            ELSE GREATEST(slots - in_flight - stuck_slots, 0)
        END AS free
    FROM pulse_django_worker
    WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %(silence)s""",
    "ended_lately": ENDED_LATELY,
}
_NAMED = re.compile(rf"\b({'|'.join(_SHARED)})\b")


def with_shared_queries(sql: str) -> str:
    """Return the statement with the shared queries that it uses."""
    wanted = set(_NAMED.findall(sql))
    for name in reversed(_SHARED):
        if name in wanted:
            wanted |= set(_NAMED.findall(_SHARED[name]))
    queries = ",\n".join(f"{name} AS ({query}\n)" for name, query in _SHARED.items() if name in wanted)
    return f"WITH {queries}\nSELECT * FROM ({sql}) AS asked" if queries else sql
