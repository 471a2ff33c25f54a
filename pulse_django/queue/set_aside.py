"""Set the waiting jobs of tasks that may not start aside, and bring them back when they may: when a pause is over.

The claim leaves such jobs out. That is exact, and it is enough for a few. A million of them at the head of a lane would
be read by every claim. ``ready = NULL`` takes them out of what claims read.

Both are for any number of watchdogs at once, and may be cut off at any time: the next sweep goes on. Verbs that write
``ready`` let a job that was set aside be claimed again, as far as the pause allows. The next sweep finds it.
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

# Statements of a sweep or a call, about 0.2 s: lost runs or a web request wait meanwhile. A later sweep does the rest.
MOST_BATCHES = 10
SET_ASIDE_LIMIT = 1_000  # of one statement: longer ones hold their locks for longer than a claim should have to wait
# Jobs at the heads of all lanes that a sweep looks at. Behind more of them, jobs of a paused task cost claims nothing.
LOOKED_AT = 20_000
FEWEST_OF_LANE = 20
# Of a lane that has one of them at its head. With fewer, jobs of other tasks between them take more statements.
READ_OF_LANE = 5_000
MOST_KEYS = 10_000  # of a queue and a priority. Finding 10,000 lanes takes 90 ms.


@assembled
def set_aside_sql() -> str:
    """A lane whose head has no job of such a task is left alone.

    Only jobs that are to be set aside are locked: a claim would pass the others by while they are.
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
    """The gates are asked within the lateral query: beside it, they would be asked of jobs that are locked already."""
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
    """Call one of the verbs below until it has nothing more to do, or so many times. Yield what each call returned."""
    for _ in count() if most is None else range(most):
        yield (queues := verb())
        if len(queues) < SET_ASIDE_LIMIT:
            break


def set_aside(jobs: JobReader, *, limit: int = SET_ASIDE_LIMIT) -> list[str]:
    """Take up to ``limit`` waiting jobs of paused tasks out of what claims read. Return the queue of each.

    Fewer than ``limit`` says that none is left at the head of a lane, or that what is left is locked.
    """
    return [queue for (queue,) in run_joined(jobs.write_alias, set_aside_sql(), [limit])]


def bring_back(jobs: JobReader, *, limit: int = SET_ASIDE_LIMIT) -> list[str]:
    """Let up to ``limit`` jobs be claimed again that are set aside, and whose task is not paused any more.

    Return the queue of each. The first that were enqueued come first.
    """
    return [queue for (queue,) in run_joined(jobs.write_alias, bring_back_sql(), [limit])]


# Let jobs with lane keys be claimed once their time has come.
#
# The claim index has their keys before their times, so those that are not due are kept apart from the others.


PROMOTE_LIMIT = 1_000  # of one statement: 14 us each

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
    """Make up to ``PROMOTE_LIMIT`` jobs ready whose time has come. Return the queue of each."""
    return [queue for (queue,) in run_joined(jobs.write_alias, _PROMOTE, [PROMOTE_LIMIT])]
