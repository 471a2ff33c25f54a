"""End jobs that have not started in time.

``expires_at`` says until when. The claim leaves such a job out from that instant on, by the server's clock; here it
gets its end: CANCELLED, in history, with a reason. A job that has been claimed once does not expire.

Watchdogs sweep. A call with the unique key of an expired job does not wait for them: it ends that job itself, in its
own transaction (``unique``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send_when_committed
from pulse_django.store.job_queries import IS_EXPIRED, JobReader
from pulse_django.store.transactions import Row, refuse_callers_transaction, run_alone, run_joined
from pulse_django.words.endings import NOT_STARTED_IN_TIME, EndedBy, Ending
from pulse_django.words.states import Status

from .history import leave
from .statements import UNSTORABLE, check_limit

logger = SafeLogger(__name__)

# Longer statements would hold their locks for longer than a claim should have to wait; shorter ones waste round trips.
EXPIRE_LIMIT = 1_000

_EXPIRE = f"""
WITH expired AS MATERIALIZED ({{pick}}),
{leave("expired", "job.attempts = 0", status="'CANCELLED'", cancel_reason=f"'{NOT_STARTED_IN_TIME}'")}
SELECT id, task, queue FROM gone
"""  # noqa: S608 - made of constants

# A worker that has locked one of them is about to claim it, or has looked at it before it expired.
_SWEEP = _EXPIRE.format(
    pick=f"""
    SELECT id
    FROM pulse_django_job_hot
    WHERE {IS_EXPIRED}
    ORDER BY expires_at
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED"""  # noqa: S608 - made of constants
)
_THESE = _EXPIRE.format(
    pick=f"""
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[]) AND {IS_EXPIRED}
    ORDER BY id
    FOR NO KEY UPDATE"""  # noqa: S608 - made of constants
)
_FIRST = f"SELECT id FROM pulse_django_job_hot WHERE {IS_EXPIRED} ORDER BY expires_at LIMIT %s"  # noqa: S608 - constants


def expire(jobs: JobReader, *, limit: int = EXPIRE_LIMIT) -> list[Ending]:
    """Cancel up to ``limit`` jobs that have not started in time, the earliest first.

    Any number of watchdogs may do it at once; each skips what another one has locked.
    """
    check_limit(limit)
    refuse_callers_transaction(jobs.write_alias)
    try:
        return _endings(run_alone(jobs.write_alias, _SWEEP, [limit]), EndedBy.WATCHDOG)
    except UNSTORABLE:
        logger.exception("Ending up to %d expired jobs failed; trying them one by one", limit)
    ids = [job_id for (job_id,) in run_alone(jobs.write_alias, _FIRST, [limit])]
    return [ending for job_id in ids for ending in _expire_one(jobs, job_id)]


def _expire_one(jobs: JobReader, job_id: int) -> list[Ending]:
    try:
        return _endings(run_alone(jobs.write_alias, _THESE, [[job_id]]), EndedBy.WATCHDOG)
    except UNSTORABLE:
        logger.exception("Ending the expired job %d failed", job_id)
        return []


def expire_these(jobs: JobReader, job_ids: Sequence[int]) -> None:
    """Cancel those of these jobs that have not started in time, in the caller's transaction."""
    rows = run_joined(jobs.write_alias, _THESE, [sorted(job_ids)])
    for ending in _endings(rows, EndedBy.CALLER):
        send_when_committed(jobs.model, ending, using=jobs.write_alias)


def _endings(rows: Sequence[Row], by: EndedBy) -> list[Ending]:
    return [_ending(*row, by=by) for row in rows]


def _ending(job_id: int, task: str, queue: str, *, by: EndedBy) -> Ending:
    facts: dict[str, Any] = {"job_id": job_id, "task": task, "queue": queue, "by": by}
    return Ending(
        **facts,
        attempt=0,
        previous=Status.PENDING,
        status=Status.CANCELLED,
        outcome=None,
        reason=NOT_STARTED_IN_TIME,
        expired=True,
    )
