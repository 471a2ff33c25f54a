"""Find out whether a job would wait for what waits for itself. It would wait for ever.

The search goes from the job to what waits for it: jobs that need it, its batch, the batches that one is within, and the
jobs that need those. These are few, where what a batch contains may be a million.
"""

from __future__ import annotations

from collections.abc import Sequence

from pulse_django.exceptions import InvalidWorkflow
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import run_joined
from pulse_django.words.needs import Need

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
    """Raise if a ``job``, or a job that is added to a ``batch``, would need what waits for it.

    Hold locks on the job and on what it needs. Two runs that begin to wait for each other are found by the later one.
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
