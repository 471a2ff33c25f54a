"""Cancel what waits, and ask what runs to stop."""

from __future__ import annotations

from collections.abc import Collection

from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import run_joined
from pulse_django.words.error_details import MAX_SUMMARY
from pulse_django.words.job_ids import check_attempt, job_ids_of
from pulse_django.words.payloads import clean_text
from pulse_django.words.states import Status
from pulse_django.words.verb_results import CancelRequested

_REQUEST_CANCEL = """
WITH wanted AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job
    WHERE id = ANY (%s::bigint[]) AND finished_at IS NULL AND cancel_requested_at IS NULL
        AND attempts = COALESCE(%s::int, attempts)
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pulse_django_job AS job
SET status = CASE WHEN job.locked_by IS NULL THEN 'CANCELLED' ELSE job.status END,
    finished_at = CASE WHEN job.locked_by IS NULL THEN clock_timestamp() END,
    cancel_requested_at = clock_timestamp(),
    cancel_reason = %s
FROM wanted
WHERE job.id = wanted.id AND job.finished_at IS NULL AND job.cancel_requested_at IS NULL
RETURNING job.id, job.status
"""


def request_cancel(
    jobs: JobReader, job_ids: Collection[int], *, reason: str = "", attempt: int | None = None
) -> CancelRequested:
    """Cancel what is waiting, and ask what is running to stop; only in that ``attempt``, if one is named."""
    check_attempt(attempt)
    asked_for = job_ids_of(job_ids)
    rows = run_joined(jobs.write_alias, _REQUEST_CANCEL, [sorted(asked_for), attempt, clean_text(reason, MAX_SUMMARY)])
    cancelled = frozenset(job_id for job_id, status in rows if status == Status.CANCELLED)
    asked = frozenset(job_id for job_id, status in rows if status == Status.RUNNING)
    return CancelRequested(cancelled=cancelled, asked=asked, refused=asked_for - cancelled - asked)
