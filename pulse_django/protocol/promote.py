"""Let jobs with lane keys be claimed once their time has come.

The claim index has their keys before their times, so those that are not due are kept apart from the others.
"""

from __future__ import annotations

from pulse_django.store.job_conditions import CLAIMABLE
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import run_joined

PROMOTE_LIMIT = 1_000  # of one statement: 14 us each

_PROMOTE = f"""
UPDATE pulse_django_job_hot AS job
SET ready = true
WHERE job.id = ANY (ARRAY(
    SELECT id FROM pulse_django_job_hot
    WHERE {CLAIMABLE} AND NOT ready AND next_run_at <= statement_timestamp()
    ORDER BY next_run_at, id
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED
)) AND NOT job.ready
RETURNING job.queue
"""  # noqa: S608 - made of constants


def promote(jobs: JobReader, *, limit: int = PROMOTE_LIMIT) -> list[str]:
    """Make up to ``limit`` jobs ready whose time has come. Return the queue of each."""
    return [queue for (queue,) in run_joined(jobs.write_alias, _PROMOTE, [limit])]
