"""Revive dead letters, with their history."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import run_joined
from pulse_django.words.job_ids import check_attempt, check_whole_number, job_ids_of
from pulse_django.words.limits import MOST_ATTEMPTS
from pulse_django.words.verb_results import Retried

from .statements import check_delay

# ``attempts`` stays: a zombie of an old run must never meet its own number again. What a retry grants is refunds, and
# only as many as the runs asked for need.
_RETRY = """
WITH dead AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[]) AND status::text = 'DEAD_LETTERED'
        AND attempts = COALESCE(%s::int, attempts)
    ORDER BY id
    FOR NO KEY UPDATE
),
in_line AS (
    SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM dead
)
UPDATE pulse_django_job_hot AS job
SET status = 'PENDING',
    refunds = LEAST(job.attempts, job.refunds + GREATEST(0, %s - (job.max_attempts - job.attempts + job.refunds))),
    next_run_at = clock_timestamp() + (%s::float8 + in_line.place::float8 * %s::float8) * interval '1 second',
    finished_at = NULL,
    cancel_requested_at = NULL,
    cancel_reason = ''
FROM in_line
WHERE job.id = in_line.id AND job.status::text = 'DEAD_LETTERED'
RETURNING job.id
"""


def retry(
    jobs: JobReader,
    job_ids: Collection[int],
    *,
    runs: int = 1,
    delay: timedelta = timedelta(),
    gap: timedelta = timedelta(),
    attempt: int | None = None,
) -> Retried:
    """Revive what is still dead, with at least ``runs`` more attempts and all of its history.

    The first is due after ``delay``, and each of the others ``gap`` after the one before it. With ``attempt``, only
    what died in that one.
    """
    check_whole_number("runs", runs, 1, MOST_ATTEMPTS)
    check_attempt(attempt)
    check_delay(delay)
    check_delay(gap)
    asked_for = job_ids_of(job_ids)
    rows = run_joined(
        jobs.write_alias, _RETRY, [sorted(asked_for), attempt, runs, delay.total_seconds(), gap.total_seconds()]
    )
    revived = frozenset(job_id for (job_id,) in rows)
    return Retried(revived=revived, moved_on=asked_for - revived)
