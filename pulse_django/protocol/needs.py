"""Write down what jobs need. A part of ``enqueue``, and of a run that waits."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import joined, run_joined
from pulse_django.words.leases import Lease
from pulse_django.words.needs import Need

from .circles import refuse_circles

# The INSERT copies as well: Citus mixes up the columns of one that computes beside a CTE.
_ADD = """
WITH need AS MATERIALIZED (
    SELECT
        job, needs, batch, event, COALESCE(name, '') AS name, on_dead, moment,
        clock_timestamp() + timeout * interval '1 second' AS until
    FROM pg_catalog.json_to_recordset(%s::json) AS said (
        job bigint, needs bigint, batch bigint, event text, name text, on_dead text, moment text, timeout float8
    )
)
INSERT INTO pulse_django_dependency (job_id, needs, needs_batch, needs_event, name, on_dead, moment, until)
SELECT job, needs, batch, event, name, on_dead, moment, until
FROM need
WHERE NOT EXISTS (
    SELECT 1 FROM pulse_django_dependency AS old
    WHERE old.job_id = need.job AND old.met_at IS NULL AND (
        old.needs = need.needs OR old.needs_batch = need.batch AND old.moment::text = need.moment
        OR old.needs_event::text = need.event
    )
)
RETURNING id
"""

# A call of ``resolve`` that closes a batch looks for who needs it, and commits later. So a need is not added meanwhile:
# it would be seen neither by that call, nor the end of the batch by the look at the job that waits.
_LOCK_BATCHES = "SELECT id FROM pulse_django_batch WHERE id = ANY (%s::bigint[]) ORDER BY id FOR SHARE"

# Jobs that were there before. One that is over already is found by the look at the job that waits.
_AWAIT = """
WITH locked AS MATERIALIZED (
    SELECT id FROM pulse_django_job_hot WHERE id = ANY (%s::bigint[]) AND NOT awaited ORDER BY id FOR NO KEY UPDATE
)
UPDATE pulse_django_job_hot AS job SET awaited = true FROM locked WHERE job.id = locked.id RETURNING job.id
"""

_NOTE = "INSERT INTO pulse_django_unresolved (job_id) SELECT pg_catalog.unnest(%s::bigint[]) RETURNING id"

# The job of a run, and those that it will need, in the order of their ids.
_HOLD = """
WITH locked AS MATERIALIZED (
    SELECT id, locked_by, attempts
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[])
    ORDER BY id
    FOR NO KEY UPDATE
)
SELECT id FROM locked WHERE id = %s AND locked_by::text = %s AND attempts = %s
"""


def add_needs(
    jobs: JobReader, needs: Sequence[tuple[int, Need]], *, new_jobs: Collection[int] = frozenset(), waits: bool = True
) -> None:
    """Let each of these jobs need something, in the caller's transaction.

    ``new_jobs`` were inserted by this transaction and know already that they are awaited. ``waits``: the jobs are
    WAITING, so that ``resolve`` has to look at them. A need that is not met yet is not added twice.
    """
    with joined(jobs.write_alias):
        _lock_batches(jobs, [need for _, need in needs])
        awaited = {need.job_id for _, need in needs if need.job_id is not None} - set(new_jobs)
        if awaited:
            run_joined(jobs.write_alias, _AWAIT, [sorted(awaited)])
        run_joined(jobs.write_alias, _ADD, [json.dumps([_row_of(job_id, need) for job_id, need in needs])])
        if waits:
            # Those that need only what is new are looked at when it ends.
            look_at = {job_id for job_id, need in needs if need.job_id is None or need.job_id in awaited}
            note_waiting(jobs, look_at)


def add_needs_of_run(jobs: JobReader, lease: Lease, needs: Sequence[Need]) -> bool:
    """Let the job of a run need something. Return False, and add nothing, if the run has lost its lease.

    Raise ``InvalidWorkflow`` if something that it needs waits for this job.
    """
    with joined(jobs.write_alias):
        _lock_batches(jobs, needs)  # first, because whoever seals a batch may then complete a job
        wanted = {lease.job_id} | {need.job_id for need in needs if need.job_id is not None}
        if not run_joined(jobs.write_alias, _HOLD, [sorted(wanted), *lease]):
            return False
        refuse_circles(jobs, "job", lease.job_id, needs)
        add_needs(jobs, [(lease.job_id, need) for need in needs], waits=False)
    return True


def note_waiting(jobs: JobReader, job_ids: Collection[int]) -> None:
    """Have ``resolve`` look at these jobs after the commit."""
    if job_ids:
        run_joined(jobs.write_alias, _NOTE, [sorted(job_ids)])


def _lock_batches(jobs: JobReader, needs: Collection[Need]) -> None:
    batches = {need.batch_id for need in needs if need.batch_id is not None}
    if batches:
        run_joined(jobs.write_alias, _LOCK_BATCHES, [sorted(batches)])


def _row_of(job_id: int, need: Need) -> dict[str, Any]:
    return {
        "job": job_id,
        "needs": need.job_id,
        "batch": need.batch_id,
        "event": need.event,
        "name": need.name,
        "on_dead": need.on_dead,
        "moment": need.when,
        "timeout": need.timeout,
    }
