"""Cancel waiting jobs, and ask running ones to stop."""

from __future__ import annotations

from collections.abc import Collection

from pulse_django.signals import send_when_committed
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import Row, run_joined
from pulse_django.words.endings import EndedBy, Ending
from pulse_django.words.error_details import MAX_SUMMARY
from pulse_django.words.job_ids import check_attempt, job_ids_of
from pulse_django.words.payloads import clean_text
from pulse_django.words.states import Status
from pulse_django.words.verb_results import CancelRequested

_REQUEST_CANCEL = """
WITH wanted AS MATERIALIZED (
    SELECT id, status
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
RETURNING job.id, job.status, wanted.status, job.task, job.queue, job.attempts
"""


def request_cancel(
    jobs: JobReader, job_ids: Collection[int], *, reason: str = "", attempt: int | None = None
) -> CancelRequested:
    """Cancel what is waiting, and ask what is running to stop; only in that ``attempt``, if one is named."""
    check_attempt(attempt)
    asked_for = job_ids_of(job_ids)
    reason = clean_text(reason, MAX_SUMMARY)
    rows = run_joined(jobs.write_alias, _REQUEST_CANCEL, [sorted(asked_for), attempt, reason])
    cancelled = frozenset(row[0] for row in rows if row[1] == Status.CANCELLED)
    asked = frozenset(row[0] for row in rows if row[1] == Status.RUNNING)
    for row in rows:
        if row[0] in cancelled:
            send_when_committed(jobs.model, _ending_of(row, reason), using=jobs.write_alias)
    return CancelRequested(cancelled=cancelled, asked=asked, refused=asked_for - cancelled - asked)


def _ending_of(row: Row, reason: str) -> Ending:
    job_id, status, previous, task, queue, attempts = row
    return Ending(
        job_id=job_id,
        task=task,
        queue=queue,
        attempt=attempts,
        previous=Status(previous),
        status=Status(status),
        by=EndedBy.CALLER,
        outcome=None,
        reason=reason,
    )
