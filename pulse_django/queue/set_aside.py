"""Set waiting jobs of paused tasks aside, and bring them back when the pause is over.

A claim also checks the pause of each job, which is exact, and fast enough for a few jobs. But every claim would read a
million of them at the head of a lane. ``ready = NULL`` takes them out of the range of the index
that claims read.

Any number of watchdogs may run both verbs at once, and may be interrupted at any time: the next sweep continues. Other
verbs may set ``ready`` of a job that was set aside. The claim still checks the pause, and the next sweep sets the job
aside again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count

from .capability import assembled
from .database.constraints import IS_CLAIMABLE
from .database.job_queries import JobReader
from .database.lane_queries import IN_LANE, IS_SET_ASIDE, PAIRS, TASKS_SET_ASIDE, lanes_cte
from .database.transactions import run_joined
from .gates import gate_relations, gates_of_tasks

# Statements in a sweep or a call, about 0.2 s: lost runs or a web request wait meanwhile. A later sweep does the rest.
MOST_BATCHES = 10
SET_ASIDE_LIMIT = 1_000  # jobs in one statement: more would hold their locks for longer than a claim should wait
# How many jobs at the heads of all lanes a sweep reads. Paused jobs that are further back do not slow claims down.
LOOKED_AT = 20_000
FEWEST_OF_LANE = 20
# How many jobs are read of a lane with a paused job at its head. With fewer, mixed lanes take more statements.
READ_OF_LANE = 5_000
MOST_KEYS = 10_000  # for each queue and priority. Finding 10,000 lanes takes 90 ms.


@assembled
def set_aside_sql() -> str:
    """Return the statement. It skips a lane whose head has no job of a paused task.

    It locks only jobs that it sets aside: a claim would skip the others while they are locked.
    """
    read, can_start = gate_relations(), gates_of_tasks("head")
    return f"""{lanes_cte(PAIRS, most=MOST_KEYS)},
share (most) AS MATERIALIZED (SELECT GREATEST({FEWEST_OF_LANE}, {LOOKED_AT} / GREATEST(count(*), 1)) FROM lane),
hit AS MATERIALIZED (
    SELECT lane.queue, lane.priority, lane.lane_key
    FROM {read}lane
    CROSS JOIN share
    WHERE EXISTS (
        SELECT 1
        FROM (
            SELECT task, queue FROM pulse_django_job_hot WHERE {IN_LANE} ORDER BY next_run_at, id LIMIT share.most
        ) AS head
        WHERE ({can_start}) IS NOT TRUE
    )
),
found AS MATERIALIZED (
    SELECT head.id
    FROM {read}hit AS lane
    CROSS JOIN LATERAL (
        SELECT id, task, queue FROM pulse_django_job_hot WHERE {IN_LANE} ORDER BY next_run_at, id LIMIT {READ_OF_LANE}
    ) AS head
    WHERE ({can_start}) IS NOT TRUE
    LIMIT %s
),
aside AS (
    UPDATE pulse_django_job_hot AS job
    SET ready = NULL
    WHERE job.id = ANY (ARRAY(
        SELECT id FROM pulse_django_job_hot
        WHERE id = ANY (ARRAY(SELECT id FROM found)) AND {IS_CLAIMABLE} AND ready
        ORDER BY id
        FOR NO KEY UPDATE SKIP LOCKED
    )) AND job.ready
    RETURNING job.queue
)
SELECT queue FROM aside
"""  # noqa: S608 - made of constants


@assembled
def bring_back_sql() -> str:
    """Return the statement. The gates are in the lateral query, so that they are checked before a job is locked."""
    return f"""{TASKS_SET_ASIDE},
locked AS MATERIALIZED (
    SELECT back.id, back.lane_key, back.next_run_at
    FROM {gate_relations()}met
    CROSS JOIN LATERAL (
        SELECT id, lane_key, next_run_at FROM pulse_django_job_hot
        WHERE {IS_SET_ASIDE} AND task::text = met.task::text AND queue::text = met.queue::text
            AND {gates_of_tasks("met")}
        ORDER BY id
        LIMIT {SET_ASIDE_LIMIT}
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS back
    LIMIT %s
),
back AS MATERIALIZED (
    SELECT id, lane_key::text = '' OR next_run_at <= clock_timestamp() AS ready FROM locked
),
written AS (
    UPDATE pulse_django_job_hot AS job
    SET ready = back.ready
    FROM back
    WHERE job.id = ANY (ARRAY[back.id]) AND job.ready IS NULL
    RETURNING job.queue
)
SELECT queue FROM written
"""  # noqa: S608 - made of constants


def in_batches(verb: Callable[[], list[str]], most: int | None = MOST_BATCHES) -> Iterator[list[str]]:
    """Call a verb below until nothing is left to do, at most ``most`` times. Yield the result of each call."""
    for _ in count() if most is None else range(most):
        yield (queues := verb())
        if len(queues) < SET_ASIDE_LIMIT:
            break


def set_aside(jobs: JobReader, *, limit: int = SET_ASIDE_LIMIT) -> list[str]:
    """Hide up to ``limit`` waiting jobs of paused tasks from claims. Return the queue of each.

    If it returns fewer than ``limit``, no such job is left at the head of a lane, or the rest is locked.
    """
    return [queue for (queue,) in run_joined(jobs.write_alias, set_aside_sql(), [limit])]


def bring_back(jobs: JobReader, *, limit: int = SET_ASIDE_LIMIT) -> list[str]:
    """Make up to ``limit`` jobs visible to claims again whose task is not paused any more. Return the queue of each.

    Jobs that were enqueued first come first.
    """
    return [queue for (queue,) in run_joined(jobs.write_alias, bring_back_sql(), [limit])]


# Make jobs with lane keys visible to claims when they are due.
#
# In the claim index, the key stands before the time. So jobs with a key that are not due have ``ready = false``,
# which is another range of the index.


PROMOTE_LIMIT = 1_000  # jobs in one statement: 14 us each

_PROMOTE = f"""
UPDATE pulse_django_job_hot AS job
SET ready = true
WHERE job.id = ANY (ARRAY(
    SELECT id FROM pulse_django_job_hot
    WHERE {IS_CLAIMABLE} AND NOT ready AND next_run_at <= statement_timestamp()
    ORDER BY next_run_at, id
    LIMIT %s
    FOR NO KEY UPDATE SKIP LOCKED
)) AND NOT job.ready
RETURNING job.queue
"""  # noqa: S608 - made of constants


def promote(jobs: JobReader) -> list[str]:
    """Make up to ``PROMOTE_LIMIT`` due jobs ready. Return the queue of each."""
    return [queue for (queue,) in run_joined(jobs.write_alias, _PROMOTE, [PROMOTE_LIMIT])]
