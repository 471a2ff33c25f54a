"""Store the needs of jobs: a part of ``enqueue``, and of a run that waits."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from pulse_django.exceptions import InvalidWorkflow
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.transactions import Row, joined, refuse_callers_transaction, run_joined
from pulse_django.queue.words.leases import Lease

from .rules import Need

# The INSERT copies as well: a cluster mixes up the columns of one that computes beside a CTE.
_ADD = """
WITH need AS MATERIALIZED (
    SELECT
        job, needs, batch, event, COALESCE(name, '') AS name, on_need_failed, moment,
        clock_timestamp() + timeout * interval '1 second' AS until
    FROM pg_catalog.json_to_recordset(%s::json) AS said (
        job bigint, needs bigint, batch bigint, event text, name text, on_need_failed text, moment text, timeout float8
    )
)
INSERT INTO pulse_django_dependency (job_id, needs, needs_batch, needs_event, name, on_need_failed, moment, until)
SELECT job, needs, batch, event, name, on_need_failed, moment, until
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

# A call of ``resolve`` that closes a batch reads its needs, and commits later. So no need is added meanwhile: that call
# would not see the need, and the check of the waiting job would not see the end of the batch.
_LOCK_BATCHES = "SELECT id FROM pulse_django_batch WHERE id = ANY (%s::bigint[]) ORDER BY id FOR SHARE"

# Earlier jobs. If one has already ended, the check of the waiting job finds it.
_AWAIT = """
WITH locked AS MATERIALIZED (
    SELECT id FROM pulse_django_job_hot WHERE id = ANY (%s::bigint[]) AND NOT awaited ORDER BY id FOR NO KEY UPDATE
)
UPDATE pulse_django_job_hot AS job SET awaited = true FROM locked WHERE job.id = locked.id RETURNING job.id
"""

_NOTE = "INSERT INTO pulse_django_unresolved (job_id) SELECT pg_catalog.unnest(%s::bigint[]) RETURNING id"

# The job of a run and the jobs that it will need, in the order of their ids.
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
    """Add needs to these jobs, in the caller's transaction.

    ``new_jobs`` were inserted by this transaction and are already marked as awaited. ``waits``: the jobs are WAITING,
    so ``resolve`` has to check them. An unmet need is not added twice.
    """
    with joined(jobs.write_alias):
        _lock_batches(jobs, [need for _, need in needs])
        awaited = {need.job_id for _, need in needs if need.job_id is not None} - set(new_jobs)
        if awaited:
            run_joined(jobs.write_alias, _AWAIT, [sorted(awaited)])
        run_joined(jobs.write_alias, _ADD, [json.dumps([_row_of(job_id, need) for job_id, need in needs])])
        # Jobs that need only new jobs are checked when these end.
        look_at = {job_id for job_id, need in needs if need.job_id is None or need.job_id in awaited}
        if waits and look_at:
            run_joined(jobs.write_alias, _NOTE, [sorted(look_at)])


def add_needs_of_run(jobs: JobReader, lease: Lease, needs: Sequence[Need]) -> bool:
    """Add a need to the job of a run. Return False, and add nothing, if the run has lost its lease.

    Raise ``InvalidWorkflow`` if the needed job or batch waits for this job.
    """
    with joined(jobs.write_alias):
        _lock_batches(jobs, needs)  # first, because a process that seals a batch may then complete a job
        wanted = {lease.job_id} | {need.job_id for need in needs if need.job_id is not None}
        if not run_joined(jobs.write_alias, _HOLD, [sorted(wanted), *lease]):
            return False
        refuse_circles(jobs, "job", lease.job_id, needs)
        add_needs(jobs, [(lease.job_id, need) for need in needs], waits=False)
    return True


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
        "on_need_failed": need.on_need_failed,
        "moment": need.when,
        "timeout": need.timeout,
    }


# Find cycles: a job that needs a job or batch that waits for it would wait for ever.
#
# The search goes from the job to those that wait for it: jobs that need it, its batch, the batches around that, and the
# jobs that need those. These are few, while a batch may contain a million jobs.


MOST_LOOKED_AT = 10_000  # of what waits for the job. A circle that is longer than that is not found.

_FIND = """
WITH RECURSIVE waiter (kind, id) AS (
    SELECT %(kind)s::text, %(id)s::bigint
    UNION
    SELECT next.kind, next.id
    FROM waiter
    CROSS JOIN LATERAL (
        SELECT 'job' AS kind, job_id AS id
        FROM pulse_django_dependency
        WHERE waiter.kind = 'job' AND needs = waiter.id AND needs IS NOT NULL AND met_at IS NULL
        UNION ALL
        SELECT 'batch', batch_id
        FROM pulse_django_job_hot
        WHERE waiter.kind = 'job' AND id = waiter.id AND batch_id IS NOT NULL
        UNION ALL
        SELECT 'job', job_id
        FROM pulse_django_dependency
        WHERE waiter.kind = 'batch' AND needs_batch = waiter.id AND needs_batch IS NOT NULL AND met_at IS NULL
        UNION ALL
        SELECT 'batch', parent_id
        FROM pulse_django_batch
        WHERE waiter.kind = 'batch' AND id = waiter.id AND parent_id IS NOT NULL
    ) AS next
),
looked_at AS (SELECT kind, id FROM waiter LIMIT %(most)s)
SELECT kind, id
FROM looked_at
WHERE kind = 'job' AND id = ANY (%(jobs)s::bigint[]) OR kind = 'batch' AND id = ANY (%(batches)s::bigint[])
LIMIT 1
"""


def refuse_circles(jobs: JobReader, kind: str, id_: int, needs: Sequence[Need]) -> None:
    """Raise if a ``job``, or a job that is added to a ``batch``, would need a job or batch that waits for it.

    Hold locks on the job and on its needs. Two runs that begin to wait for each other are found by the later one.
    """
    wanted = {
        "kind": kind,
        "id": id_,
        "jobs": [need.job_id for need in needs if need.job_id is not None],
        "batches": [need.batch_id for need in needs if need.batch_id is not None],
        "most": MOST_LOOKED_AT,
    }
    if not wanted["jobs"] and not wanted["batches"]:
        return
    for found, found_id in run_joined(jobs.write_alias, _FIND, wanted):
        raise InvalidWorkflow(f"{kind} {id_} cannot wait for {found} {found_id}, which waits for it")


# Find jobs whose needs ended without a note, and note them for ``resolve``.
#
# Workers of a release without workflows end jobs without a note, and so does a DELETE by hand. A watchdog checks
# waiting jobs, some thousand rows a minute.


WALKED_AT_ONCE = 5_000

# A job that ended a moment ago has a note, so the jobs that need it are not overlooked.
_WALK_WAITING = """
WITH walked AS MATERIALIZED (
    SELECT id, batch_id
    FROM pulse_django_job_hot
    WHERE status::text = 'WAITING' AND id > %s
    ORDER BY id
    LIMIT %s
),
overlooked AS MATERIALIZED (
    SELECT id
    FROM walked
    WHERE NOT EXISTS (SELECT 1 FROM pulse_django_unresolved WHERE job_id = walked.id)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_batch AS batch WHERE batch.id = walked.batch_id AND batch.paused_at IS NOT NULL
        )
        AND (
            NOT EXISTS (SELECT 1 FROM pulse_django_dependency WHERE job_id = walked.id AND met_at IS NULL)
            OR EXISTS (
                SELECT 1 FROM pulse_django_dependency AS need
                WHERE need.job_id = walked.id AND need.met_at IS NULL AND NOT EXISTS (
                    SELECT 1 FROM pulse_django_unresolved AS change
                    WHERE change.job_id = need.needs OR change.batch_id = need.needs_batch
                        OR change.event::text = need.needs_event::text
                ) AND (
                    need.needs IS NOT NULL
                        AND NOT EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE id = need.needs)
                    OR need.needs_batch IS NOT NULL AND NOT EXISTS (
                        SELECT 1 FROM pulse_django_batch WHERE id = need.needs_batch AND finished_at IS NULL
                    )
                    OR need.needs_event IS NOT NULL AND EXISTS (
                        SELECT 1 FROM pulse_django_event WHERE name::text = need.needs_event::text
                    )
                )
            )
        )
)"""

_BATCHES = """
WITH walked AS MATERIALIZED (
    SELECT id, sealed_at, ended_at, cancelled_at
    FROM pulse_django_batch
    WHERE finished_at IS NULL AND id > %s
    ORDER BY id
    LIMIT %s
),
overlooked AS MATERIALIZED (
    SELECT id
    FROM walked
    WHERE sealed_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM pulse_django_unresolved WHERE batch_id = walked.id AND batch_id IS NOT NULL)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = walked.id AND batch_id IS NOT NULL AND finished_at IS NULL
                AND (walked.cancelled_at IS NULL OR cancel_requested_at IS NOT NULL)
        )
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_batch AS child WHERE child.parent_id = walked.id AND child.finished_at IS NULL
        )
        AND (ended_at IS NULL OR cancelled_at IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = walked.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
        ))
)"""
FOUND = "SELECT pg_catalog.max(id), (SELECT count(*) FROM overlooked)"
_WALK = f"""{{overlooked}},
noted AS (
    INSERT INTO pulse_django_unresolved ({{column}}) SELECT id FROM overlooked
)
{FOUND} FROM walked
"""  # noqa: S608 - made of constants
_WALKS = {"job_id": _WALK_WAITING, "batch_id": _BATCHES}

_walked_until: dict[tuple[str, str], int] = {}  # by alias and walk: the last row that was looked at


class Walking(Statements):
    """The statement that notes what has nothing left to wait for."""

    def note(self, walk: str, column: str, after: int) -> Row:
        """Walk over the next rows. Return the last of them, and how many were noted."""
        [found] = run_joined(self.alias, _WALK.format(overlooked=walk, column=column), [after, WALKED_AT_ONCE])
        return found


def note_overlooked(jobs: JobReader) -> int:
    """Check the next waiting jobs and batches, and note those whose needs have ended. Return how many."""
    alias, found = jobs.write_alias, 0
    for column, walk in _WALKS.items():
        place = alias, column
        refuse_callers_transaction(alias)
        last, overlooked = statements_for(Walking, alias).note(walk, column, _walked_until.get(place, 0))
        _walked_until[place] = last or 0
        found += int(overlooked)
    return found
