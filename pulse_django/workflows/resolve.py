"""Free the jobs whose needs are met, and close the batches whose members have all ended.

It reads committed changes, after the commit, and never inside the transaction that made them: if two workers end the
last two needs at once, each would see the other's as open (docs/adr/0062).

Every change that may free a job has a row in ``pulse_django_unresolved``, which the statement that made the change
wrote. A call takes some of these rows, does what follows from them, and deletes them, in one transaction. A process
that dies leaves them to the next call: of any worker, or of a watchdog's sweep.

Nothing here waits for a lock. What is locked is left, with its row, for a later call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pulse_django.queue.capability import AtEnd, assembled
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.transactions import Row, joined, run_joined
from pulse_django.queue.ending import leave
from pulse_django.queue.words.states import EndedBy, Ending, Status

from .batch_verbs import JudgedBatches, judge_batches

RESOLVE_LIMIT = 1_000

# One row for each batch, however many of its members have ended, and one for each job that others need. Most jobs are
# neither. So the CTE is read once: two reads and a union make the settle of ten such jobs take 4 % longer.
_NOTE_OVER = """
    INSERT INTO pulse_django_unresolved (job_id, batch_id, completed, cancelled)
    SELECT
        CASE WHEN awaited THEN id END, batch_id, count(*) FILTER (WHERE {status} = 'COMPLETED'),
        count(*) FILTER (WHERE {status} <> 'COMPLETED')
    FROM {gone}
    WHERE awaited OR batch_id IS NOT NULL
    GROUP BY 1, 2
"""
# Runs that left a dead letter, or a job that waits for others.
_NOTE_STAYED = """
    INSERT INTO pulse_django_unresolved (job_id, batch_id, died)
    SELECT id, NULL::bigint, false FROM {stayed} WHERE verdict = 'WAITING' OR awaited AND verdict = 'DEAD_LETTERED'
    UNION ALL
    SELECT DISTINCT NULL::bigint, batch_id, true FROM {stayed} WHERE batch_id IS NOT NULL AND verdict = 'DEAD_LETTERED'
"""
# A job of an unfinished batch, or of a batch that a job waits for.
IS_NEEDED = """
    {job}.batch_id IS NOT NULL AND EXISTS (
        SELECT 1 FROM pulse_django_batch AS batch
        WHERE batch.id = {job}.batch_id AND batch.finished_at IS NULL
    )
    OR {job}.awaited AND EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        WHERE need.needs = {job}.id AND need.needs IS NOT NULL AND need.met_at IS NULL
    )
"""
# Dead letters of nested batches also decide a need of a batch.
IS_HOLDING = """
    {job}.awaited AND EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        JOIN pulse_django_job_hot AS waiter ON waiter.id = need.job_id
        WHERE need.needs = {job}.id AND need.needs IS NOT NULL AND need.met_at IS NULL
            AND need.on_need_failed::text = 'wait' AND waiter.finished_at IS NULL
    )
    OR {job}.batch_id IS NOT NULL AND EXISTS (
        WITH RECURSIVE around AS (
            SELECT id, parent_id FROM pulse_django_batch WHERE id = {job}.batch_id
            UNION ALL
            SELECT batch.id, batch.parent_id
            FROM around
            JOIN pulse_django_batch AS batch ON batch.id = around.parent_id
        )
        SELECT 1
        FROM around
        JOIN pulse_django_dependency AS need ON need.needs_batch = around.id
        JOIN pulse_django_job_hot AS waiter ON waiter.id = need.job_id
        WHERE need.needs_batch IS NOT NULL AND need.met_at IS NULL AND need.on_need_failed::text = 'wait'
            AND waiter.finished_at IS NULL
    )
"""
ARE_UNRESOLVED = """EXISTS (SELECT 1 FROM pulse_django_unresolved) OR EXISTS (
        SELECT 1 FROM pulse_django_dependency
        WHERE until <= statement_timestamp() AND until IS NOT NULL AND met_at IS NULL
    )"""
IS_CANCELLED = """{job}.batch_id IS NOT NULL AND EXISTS (
            SELECT 1 FROM pulse_django_batch WHERE id = {job}.batch_id AND cancelled_at IS NOT NULL
        )"""
AT_END = AtEnd(
    columns={"batch_id": "bigint", "awaited": "boolean"},
    over=_NOTE_OVER,
    stayed=_NOTE_STAYED,
    is_noted="awaited OR batch_id IS NOT NULL OR verdict = 'WAITING'",
)

_FIND = """
SELECT id, job_id, batch_id, event
FROM pulse_django_unresolved
WHERE id > %s
ORDER BY id
LIMIT %s
FOR UPDATE SKIP LOCKED
"""

_UNMET = """
SELECT * FROM pulse_django_dependency WHERE needs = ANY (%(jobs)s::bigint[]) AND needs IS NOT NULL AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency WHERE job_id = ANY (%(jobs)s::bigint[]) AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency
WHERE needs_batch = ANY (%(batches)s::bigint[]) AND needs_batch IS NOT NULL AND met_at IS NULL
UNION
SELECT * FROM pulse_django_dependency
WHERE needs_event::text = ANY (%(events)s::text[]) AND needs_event IS NOT NULL AND met_at IS NULL
UNION
(
    SELECT * FROM pulse_django_dependency
    WHERE until <= statement_timestamp() AND until IS NOT NULL AND met_at IS NULL
    ORDER BY until
    LIMIT %(limit)s
)
"""

# Lock the waiting jobs before a met need is stored. Two calls may meet different needs of one job: the call that does
# not get the lock leaves a row, so that the job is checked when both have committed. A call that meets a need of a job
# whose run is about to wait does the same, because the check of that job would not see the met need.
_LOCK_WAITING = f"""
SELECT id
FROM pulse_django_job_hot
WHERE status::text = 'WAITING' AND (
    id = ANY (%(jobs)s::bigint[]) OR id = ANY (ARRAY(SELECT job_id FROM ({_UNMET}) AS unmet))
)
ORDER BY id
FOR NO KEY UPDATE SKIP LOCKED
"""  # noqa: S608 - made of constants

# A job without a row was deleted, and counts as done.
_HOW = """
CASE
    WHEN unmet.needs IS NOT NULL THEN CASE
        WHEN hot.status IS NULL THEN CASE WHEN over.status::text = 'CANCELLED' THEN 'cancelled' ELSE 'done' END
        WHEN hot.status::text = 'DEAD_LETTERED' AND unmet.on_need_failed::text <> 'wait' THEN 'dead'
    END
    WHEN unmet.needs_batch IS NOT NULL THEN CASE
        WHEN batch.id IS NULL THEN 'done'
        WHEN unmet.moment::text = 'ended' THEN CASE WHEN batch.ended_at IS NOT NULL THEN 'done' END
        WHEN unmet.moment::text = 'dead' THEN CASE
            WHEN batch.died_at IS NOT NULL AND batch.sealed_at IS NOT NULL AND batch.cancelled_at IS NULL THEN 'done'
            WHEN batch.finished_at IS NOT NULL THEN 'cancelled'
        END
        WHEN batch.finished_at IS NOT NULL THEN CASE WHEN batch.cancelled_at IS NULL THEN 'done' ELSE 'cancelled' END
        WHEN unmet.on_need_failed::text = 'continue' AND batch.ended_at IS NOT NULL THEN 'dead'
        WHEN unmet.on_need_failed::text = 'cancel' AND batch.died_at IS NOT NULL AND batch.sealed_at IS NOT NULL
            THEN 'dead'
    END
    WHEN event.name IS NOT NULL THEN 'done'
    WHEN unmet.until <= statement_timestamp() THEN 'timed out'
END
"""

HOW_THEY_ARE_MET = f"""
WITH unmet AS MATERIALIZED ({_UNMET}),
judged AS MATERIALIZED (
    SELECT unmet.id, unmet.job_id, {_HOW} AS met
    FROM unmet
    LEFT JOIN pulse_django_job_hot AS hot ON hot.id = unmet.needs
    LEFT JOIN LATERAL (
        SELECT status FROM pulse_django_job WHERE id = unmet.needs AND era <> 0 AND hot.id IS NULL LIMIT 1
    ) AS over ON true
    LEFT JOIN pulse_django_batch AS batch ON batch.id = unmet.needs_batch
    LEFT JOIN pulse_django_event AS event ON event.name::text = unmet.needs_event::text
),
locked AS MATERIALIZED (
    SELECT id FROM pulse_django_dependency
    WHERE id = ANY (ARRAY(SELECT id FROM judged WHERE met IS NOT NULL)) AND met_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
how AS MATERIALIZED (
    SELECT judged.id, judged.job_id, judged.met, clock_timestamp() AS met_at
    FROM judged
    JOIN locked ON locked.id = judged.id
)"""  # noqa: S608 - made of constants
MARK_THEM = """
    UPDATE pulse_django_dependency AS dependency
    SET met_at = how.met_at, met = how.met
    FROM {how}
    WHERE dependency.id = how.id
"""
LEAVE_OVER = """
    INSERT INTO pulse_django_unresolved (job_id)
    SELECT DISTINCT how.job_id
    FROM {how}
    JOIN pulse_django_job_hot AS job ON job.id = how.job_id
    WHERE job.finished_at IS NULL AND how.job_id <> ALL ({locked}::bigint[])
    RETURNING job_id
"""
_MARK = f"""{HOW_THEY_ARE_MET},
marked AS ({MARK_THEM.format(how="how")}),
left_over AS ({LEAVE_OVER.format(how="how", locked="%(locked)s")})
SELECT job_id FROM left_over
"""  # noqa: S608 - made of constants

WAITS = "job.status::text = 'WAITING'"

# A job of a paused batch waits. If another transaction is about to resume the batch, the job is checked afterwards.
WAITERS = """
WITH paused AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT batch_id FROM pulse_django_job_hot WHERE id = ANY (%(waiting)s::bigint[])))
        AND paused_at IS NOT NULL
    ORDER BY id
    FOR SHARE SKIP LOCKED
),
waiter AS MATERIALIZED (
    SELECT
        job.id, job.task, job.queue, job.attempts,
        GREATEST(job.next_run_at, clock_timestamp()) AS run_at,
        job.lane_key::text = '' OR job.next_run_at <= clock_timestamp() AS is_ready,
        CASE
            WHEN lost.needs IS NOT NULL AND lost.met::text = 'dead'
            THEN pg_catalog.format('job %%s, which it needs, is a dead letter', lost.needs)
            WHEN lost.needs IS NOT NULL THEN pg_catalog.format('job %%s, which it needs, was cancelled', lost.needs)
            WHEN lost.moment::text = 'dead' THEN 'no job of the batch became a dead letter'
            WHEN lost.met::text = 'dead'
            THEN pg_catalog.format('batch %%s, which it needs, has dead letters', lost.needs_batch)
            WHEN lost.id IS NOT NULL
            THEN pg_catalog.format('batch %%s, which it needs, was cancelled', lost.needs_batch)
        END AS reason,
        batch.paused_at IS NULL AND NOT EXISTS (
            SELECT 1 FROM pulse_django_dependency WHERE job_id = job.id AND met_at IS NULL
        ) AS is_free,
        batch.paused_at IS NOT NULL AND batch.id <> ALL (ARRAY(SELECT id FROM paused)) AS is_resumed
    FROM pulse_django_job_hot AS job
    LEFT JOIN pulse_django_batch AS batch ON batch.id = job.batch_id
    LEFT JOIN LATERAL (
        SELECT id, needs, needs_batch, moment, met
        FROM pulse_django_dependency
        WHERE job_id = job.id AND met::text IN ('dead', 'cancelled') AND on_need_failed::text <> 'continue'
        ORDER BY id
        LIMIT 1
    ) AS lost ON true
    WHERE job.id = ANY (%(waiting)s::bigint[]) AND job.status::text = 'WAITING'
)"""
LOST = {"status": "'CANCELLED'", "cancel_reason": "source_reason"}
FREED = """
freed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'PENDING', next_run_at = waiter.run_at, ready = waiter.is_ready
    FROM {waiter}
    WHERE job.id = waiter.id AND job.status::text = 'WAITING' AND waiter.is_free AND waiter.reason IS NULL
    RETURNING job.id, job.queue
)
SELECT id, queue, NULL AS task, 0 AS attempts, NULL AS reason FROM freed"""
RESUMED = "INSERT INTO pulse_django_unresolved (job_id) SELECT id FROM {waiter} WHERE is_resumed"

# Changes of rows that another transaction has locked stay, and are read again after its commit. Their counts for a
# batch are added once.
_FORGET = """
WITH change AS MATERIALIZED (
    SELECT
        id,
        batch_id IS NOT NULL AND batch_id <> ALL (%(batches)s::bigint[])
            AND EXISTS (SELECT 1 FROM pulse_django_batch AS batch WHERE batch.id = one.batch_id) AS has_batch,
        job_id IS NOT NULL AND job_id <> ALL (%(waiting)s::bigint[]) AND EXISTS (
            SELECT 1 FROM pulse_django_job_hot AS job WHERE job.id = one.job_id AND job.status::text = 'WAITING'
        ) AS has_job
    FROM pulse_django_unresolved AS one
    WHERE id = ANY (%(rows)s::bigint[])
),
counted AS (
    UPDATE pulse_django_unresolved AS counted
    SET batch_id = NULL, added = 0, completed = 0, cancelled = 0, died = false
    FROM change
    WHERE counted.id = change.id AND change.has_job AND NOT change.has_batch AND counted.batch_id IS NOT NULL
)
DELETE FROM pulse_django_unresolved AS done
USING change
WHERE done.id = change.id AND NOT change.has_batch AND NOT change.has_job
RETURNING done.id
"""


@assembled
def _free_sql() -> str:
    return f"""{WAITERS},
resumed AS (
    {RESUMED.format(waiter="waiter")}
),
lost AS MATERIALIZED (SELECT id, reason FROM waiter WHERE reason IS NOT NULL),
{leave("lost", WAITS, brings=["reason"], **LOST)},{FREED.format(waiter="waiter")}
UNION ALL
SELECT waiter.id, waiter.queue, waiter.task, waiter.attempts, waiter.reason FROM waiter WHERE reason IS NOT NULL
"""  # noqa: S608 - made of constants


class Resolving(Statements):
    """The statements that mark needs as met, and free the jobs that waited for them."""

    def mark(self, touched: dict[str, Any], locked: list[int]) -> list[Row]:
        """Return jobs whose rows are locked elsewhere, which were noted for a later call."""
        return run_joined(self.alias, _MARK, touched | {"locked": locked})

    def free(self, waiting: list[int]) -> list[Row]:
        """Return id, queue, task, attempts and reason of the jobs that were freed or, with a reason, cancelled."""
        return run_joined(self.alias, _free_sql(), {"waiting": waiting})


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """The effects of changes."""

    queues: tuple[str, ...] = ()  # of the jobs that may run now
    endings: tuple[Ending, ...] = ()  # of jobs that were cancelled because of their needs
    finished: frozenset[int] = frozenset()  # batches
    cancelling: frozenset[int] = frozenset()  # batches with members that were not asked to stop yet
    rows: int = 0  # changes that were handled
    last: int = 0  # of the changes that were found
    is_locked: bool = False  # some are left, because another transaction has locked their rows
    has_more: bool = False  # call again with ``after=last``


NOTHING = Resolved()


def resolve(jobs: JobReader, *, with_timeouts: bool = False, after: int = 0) -> Resolved:
    """Free what may run, cancel what never will, and close batches, after up to ``RESOLVE_LIMIT`` changes.

    ``after``: pass the changes up to this one by, so that those of a batch that is locked for long stop no others.
    ``with_timeouts``: look for events that did not come in time, as well. Any number of processes may do it at once.
    """
    alias = jobs.write_alias
    with joined(alias):
        found = run_joined(alias, _FIND, [after, RESOLVE_LIMIT])
        if not found and not with_timeouts:
            return NOTHING
        rows = [row_id for row_id, *_ in found]
        wanted = sorted({batch_id for _, _, batch_id, _ in found if batch_id is not None})
        batches = judge_batches(alias, rows, wanted) if wanted else JudgedBatches([])
        touched = {
            "jobs": sorted({job_id for _, job_id, _, _ in found if job_id is not None}),
            "batches": batches.locked,
            "events": sorted({event for *_, event in found if event is not None}),
            "limit": RESOLVE_LIMIT if with_timeouts else 0,
        }
        waiting = [job_id for (job_id,) in run_joined(alias, _LOCK_WAITING, touched)]
        resolving = statements_for(Resolving, alias)
        left_over, freed = resolving.mark(touched, waiting), resolving.free(waiting) if waiting else []
        dealt_with = {"rows": rows, "batches": batches.locked, "waiting": waiting}
        gone = len(run_joined(alias, _FORGET, dealt_with)) if rows else 0
    cancelled = [
        Ending.of_waiting(job_id, task, queue, attempts, previous=Status.WAITING, by=EndedBy.NEEDS, reason=reason)
        for job_id, queue, task, attempts, reason in freed
        if reason is not None
    ]
    return Resolved(
        queues=tuple(sorted({queue for _, queue, _, _, reason in freed if reason is None})),
        endings=tuple(cancelled),
        finished=batches.finished,
        cancelling=batches.cancelling,
        rows=gone,
        last=max(rows, default=0),
        is_locked=gone < len(rows),
        has_more=len(rows) == RESOLVE_LIMIT or batches.has_more or bool(left_over or cancelled),
    )
