"""Pause and resume a batch: between the two none of its jobs starts.

Those that are ready to run go back to WAITING, a thousand at a time, and ``resolve`` frees no job of a paused batch.
What runs goes on. If it is to run again, or if a job is added, a watchdog's sweep holds it.
"""

from __future__ import annotations

from pulse_django.store.job_conditions import CLAIMABLE
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import joined, run_joined

from .batches import TREE

HOLD_LIMIT = 1_000

_PAUSE = f"""{TREE},
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND closed_at IS NULL AND paused_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),
written AS (
    UPDATE pulse_django_batch AS batch SET paused_at = open.now FROM open WHERE batch.id = open.id RETURNING batch.id
)
SELECT id FROM written
"""  # noqa: S608 - made of constants

_RESUME = f"""{TREE},
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND paused_at IS NOT NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
resumed AS (
    UPDATE pulse_django_batch AS batch SET paused_at = NULL FROM found WHERE batch.id = found.id
)
SELECT id FROM found
"""  # noqa: S608 - made of constants

# In the statement after the one that took the locks: who let a job wait because of the pause has committed by then.
_NOTE = """
INSERT INTO pulse_django_unresolved (job_id)
SELECT id
FROM pulse_django_job_hot
WHERE batch_id = ANY (%s::bigint[]) AND batch_id IS NOT NULL AND finished_at IS NULL AND status::text = 'WAITING'
RETURNING job_id
"""

# The batches are locked, so that none is resumed before the commit.
_HOLD = f"""
WITH paused AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch AS batch
    WHERE paused_at IS NOT NULL AND closed_at IS NULL AND EXISTS (
        SELECT 1 FROM pulse_django_job_hot
        WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL AND {CLAIMABLE}
    )
    ORDER BY id
    FOR SHARE SKIP LOCKED
),
found AS MATERIALIZED (
    SELECT job.id
    FROM paused
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulse_django_job_hot
        WHERE batch_id = paused.id AND batch_id IS NOT NULL AND finished_at IS NULL AND {CLAIMABLE}
        ORDER BY id
        LIMIT %s
    ) AS job
    LIMIT %s
),
locked AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (ARRAY(SELECT id FROM found)) AND {CLAIMABLE}
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
UPDATE pulse_django_job_hot AS job
SET status = 'WAITING'
FROM locked
WHERE job.id = locked.id AND job.locked_by IS NULL AND job.finished_at IS NULL
RETURNING job.id
"""  # noqa: S608 - made of constants


def pause_batch(jobs: JobReader, batch_id: int) -> list[int]:
    """Pause a batch and those within it, in the caller's transaction. Return which were not paused before."""
    return sorted(found for (found,) in run_joined(jobs.write_alias, _PAUSE, [batch_id]))


def resume_batch(jobs: JobReader, batch_id: int) -> list[int]:
    """Let the jobs of a batch run again, in the caller's transaction. Return which batches were paused."""
    with joined(jobs.write_alias):
        resumed = sorted(found for (found,) in run_joined(jobs.write_alias, _RESUME, [batch_id]))
        if resumed:
            run_joined(jobs.write_alias, _NOTE, [resumed])
    return resumed


def hold(jobs: JobReader, *, limit: int = HOLD_LIMIT) -> list[int]:
    """Let up to ``limit`` jobs of paused batches wait that are ready to run. Return which."""
    return [job_id for (job_id,) in run_joined(jobs.write_alias, _HOLD, [limit, limit])]
