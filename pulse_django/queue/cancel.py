"""Cancel waiting jobs, and ask running jobs to stop."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from pulse_django.signals import send_when_committed

from .capability import assembled
from .database.dialects import Statements, statements_for
from .database.job_queries import JobReader
from .database.transactions import Row, run_joined
from .ending import leave
from .words.job_ids import check_attempt, job_ids_of
from .words.payloads import MAX_SUMMARY, clean_text
from .words.states import EndedBy, Ending, Status
from .words.verb_results import CancelRequested

_IS_WANTED = "job.finished_at IS NULL AND job.cancel_requested_at IS NULL"
CANCELLED = {"status": "'CANCELLED'", "cancel_requested_at": "clock_timestamp()", "cancel_reason": "source_reason"}

# Whether a job waits is decided once, from the locked row. A claim or a settle may commit between the snapshot of this
# statement and the lock; two separate conditions could then both be false, one in each version of the row. The CASE is
# for the version in the snapshot: PostgreSQL checks constraints on it before it finds the newer one, and the table
# allows no request to stop on a job that waits.
WANTED = f"""
WITH wanted AS MATERIALIZED (
    SELECT id, status, task, queue, attempts, locked_by IS NULL AS waits, %s::text AS reason
    FROM pulse_django_job_hot AS job
    WHERE id = ANY (%s::bigint[]) AND {_IS_WANTED} AND attempts = COALESCE(%s::int, attempts)
    ORDER BY id
    FOR NO KEY UPDATE
)"""  # noqa: S608 - made of constants
ASK = """
running AS MATERIALIZED (
    SELECT id, status, reason, clock_timestamp() AS now FROM wanted WHERE NOT waits
),
asked AS (
    UPDATE pulse_django_job_hot AS job
    SET cancel_requested_at = CASE WHEN job.locked_by IS NOT NULL THEN running.now END,
        cancel_reason = running.reason
    FROM running
    WHERE job.id = running.id
    RETURNING job.id, running.status, job.task, job.queue, job.attempts
)"""
WAITS, BRINGS = "wanted.waits", ("status", "reason")


@assembled
def _request_cancel_sql() -> str:
    return f"""{WANTED},
{leave("wanted", WAITS, brings=BRINGS, **CANCELLED)},{ASK}
SELECT id, 'CANCELLED', source_status, task, queue, attempts FROM gone
UNION ALL
SELECT id, 'RUNNING', status, task, queue, attempts FROM asked
"""  # noqa: S608 - made of constants


class Cancelling(Statements):
    """The statement that cancels waiting jobs and asks running ones to stop."""

    def request(self, params: Sequence[Any]) -> list[Row]:
        """Return id, new status, old status, task, queue and attempts of each job that was cancelled or asked."""
        return run_joined(self.alias, _request_cancel_sql(), params)


def request_cancel(
    jobs: JobReader, job_ids: Collection[int], *, reason: str = "", attempt: int | None = None
) -> CancelRequested:
    """Cancel the jobs that wait, and ask the running ones to stop. With ``attempt``, only jobs in that attempt."""
    check_attempt(attempt)
    asked_for = job_ids_of(job_ids)
    reason = clean_text(reason, MAX_SUMMARY)
    params = [reason, sorted(asked_for), attempt]
    rows = statements_for(Cancelling, jobs.write_alias).request(params)
    cancelled = frozenset(row[0] for row in rows if row[1] == Status.CANCELLED)
    asked = frozenset(row[0] for row in rows if row[1] == Status.RUNNING)
    for job_id, status, previous, task, queue, attempts in rows:
        if status == Status.CANCELLED:
            facts: dict[str, Any] = {"previous": Status(previous), "by": EndedBy.CALLER, "reason": reason}
            send_when_committed(
                jobs.model, Ending.of_waiting(job_id, task, queue, attempts, **facts), using=jobs.write_alias
            )
    return CancelRequested(cancelled=cancelled, asked=asked, refused=asked_for - cancelled - asked)
