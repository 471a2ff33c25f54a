"""Change when and where a waiting job runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

from pulse_django import conf

from .database.job_queries import IS_EXPIRED, JobReader
from .database.transactions import run_joined
from .statements import check_delay
from .words.job_ids import check_attempt, job_ids_of
from .words.job_options import PRIORITY, QUEUE_NAME
from .words.lane_keys import OF_QUEUE, limiter_of_queue
from .words.verb_results import Changed

# Only waiting jobs that have not expired. A running job has a deadline, and its outcome decides when the next run
# begins.
_WAITING = f"""
WITH waiting AS MATERIALIZED (
    SELECT id, queue, lane_key, ready
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[]) AND status::text IN ('PENDING', 'RETRYING')
        AND attempts = COALESCE(%s::int, attempts) AND NOT ({IS_EXPIRED})
    ORDER BY id
    FOR NO KEY UPDATE
),
changed AS MATERIALIZED (
    SELECT id, {{computed}} FROM waiting
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET {{change}}
    FROM changed
    WHERE job.id = changed.id AND job.status::text IN ('PENDING', 'RETRYING')
    RETURNING job.id
)
SELECT id FROM written
"""  # noqa: S608 - made of constants

_RESCHEDULE = _WAITING.format(
    computed="clock_timestamp() + %s::float8 * interval '1 second' AS next_run_at, lane_key::text = '' AS ready",
    change="next_run_at = changed.next_run_at, ready = changed.ready",
)

# A job whose task has no limit has the limit of its queue, if any. Another queue may have none.
_OF_QUEUE_ALONE = f"pg_catalog.split_part(lane_key::text, ':', 1) IN ('', pg_catalog.concat('{OF_QUEUE}', queue))"
_ELSEWHERE = f"""
    CASE
        WHEN %s::text IS NOT NULL AND {_OF_QUEUE_ALONE} THEN pg_catalog.concat(
            %s::text, pg_catalog.substr(lane_key::text, pg_catalog.strpos(lane_key::text || ':', ':'))
        )
        ELSE lane_key::text
    END"""
_MOVE = _WAITING.format(
    computed=f"{_ELSEWHERE} AS lane_key, ready AND ({_ELSEWHERE}) = lane_key::text AS ready",
    change="queue = COALESCE(%s, job.queue), priority = COALESCE(%s, job.priority), lane_key = changed.lane_key, "
    "ready = changed.ready",
)


def reschedule(
    jobs: JobReader, job_ids: Collection[int], *, delay: timedelta = timedelta(), attempt: int | None = None
) -> Changed:
    """Make waiting jobs due now, or after ``delay``. With ``attempt``, only jobs that have had so many attempts."""
    check_delay(delay)
    check_attempt(attempt)
    return _change(jobs, _RESCHEDULE, job_ids, [attempt, delay.total_seconds()])


def move(
    jobs: JobReader,
    job_ids: Collection[int],
    *,
    queue: str | None = None,
    priority: int | None = None,
    attempt: int | None = None,
) -> Changed:
    """Move waiting jobs to another queue or priority. ``attempt`` is as in ``reschedule``."""
    if queue is None and priority is None:
        raise ValueError("move: give a queue or a priority")
    if queue is not None:
        QUEUE_NAME.check("queue", queue)
    if priority is not None:
        PRIORITY.check("priority", priority)
    check_attempt(attempt)
    limiter = limiter_of_queue(queue) if queue is not None and queue in conf.current().queue_limits else ""
    elsewhere = [queue, limiter]
    return _change(jobs, _MOVE, job_ids, [attempt, *elsewhere, *elsewhere, queue, priority])


def _change(jobs: JobReader, statement: str, job_ids: Collection[int], params: Sequence[Any]) -> Changed:
    asked_for = job_ids_of(job_ids)
    rows = run_joined(jobs.write_alias, statement, [sorted(asked_for), *params])
    changed = frozenset(job_id for (job_id,) in rows)
    return Changed(changed=changed, moved_on=asked_for - changed)
