"""How a run ends: the verdict, the write and the row of the ledger. Settle and reap end with the same statement.

The verb in front makes ``ending``: a row for each run, locked, with what happened and what is to become of the job.
"""

from __future__ import annotations

# The rules of ``decide()`` that only the database can judge in time, because a report may have been written before: a
# cancellation that was requested meanwhile wins over everything but success, and a budget that was lowered meanwhile
# leaves no retry. A table-driven test compares it with ``decide()``.
#
# ``wanted`` is the status that the report asks for, ``refund`` how many attempts it gives back, ``job`` the locked row.
_VERDICT = """CASE
            WHEN {wanted} IN ('COMPLETED', 'CANCELLED') THEN {wanted}
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN {wanted} = 'RETRYING' AND job.attempts - job.refunds - {refund} >= job.max_attempts
            THEN 'DEAD_LETTERED'
            ELSE {wanted}
        END"""

# The fenced UPDATE and the ledger's row in one statement: neither can exist without the other.
#
# ON CONFLICT: a ledger that was restored or edited may hold the row already. It must not keep a run from ending.
_END = """
ended AS (
    UPDATE pulse_django_job AS job
    SET status = ending.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = job.refunds + COALESCE(ending.refund, 0),
        losses = job.losses + COALESCE(ending.loss, 0),
        next_run_at = CASE
            WHEN ending.verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + ending.delay * interval '1 second'
            ELSE job.next_run_at
        END,
        finished_at = CASE WHEN ending.verdict IN ('PENDING', 'RETRYING') THEN NULL ELSE clock_timestamp() END,
        last_error = COALESCE(ending.error, job.last_error),
        cancel_reason = COALESCE(ending.cancel_reason, job.cancel_reason),
        result = ending.result::jsonb,
        progress = COALESCE(ending.progress::jsonb, job.progress)
    FROM ending
    WHERE job.id = ending.id AND job.locked_by::text = ending.holder AND job.attempts = ending.attempt{still}
    RETURNING ending.*
),
ledger AS (
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, error_class, message,
        traceback
    )
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM ended
    ON CONFLICT (job_id, number) DO NOTHING
)
"""


def verdict(*, wanted: str, refund: str) -> str:
    """Return the SQL for the status that a job gets, from that for the status wanted and for the refund."""
    return _VERDICT.format(wanted=wanted, refund=refund)


def end(*, still: str = "") -> str:
    """Return the SQL that ends what ``ending`` holds. ``still`` is a further condition on the row as it is written."""
    return _END.format(still=still)
