"""Open, seal, cancel, pause and resume batches.

The members of a batch decide whether it has ended. ``resolve`` reads them when one of them has ended.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db.models import Q

from pulse_django.exceptions import BatchFinished, InvalidJob, InvalidWorkflow
from pulse_django.queue.cancel import request_cancel
from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.transactions import Row, joined, run_alone, run_joined
from pulse_django.queue.enqueue import Added, AroundInsert, take_ids
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.payloads import MAX_SUMMARY, clean_text
from pulse_django.queue.words.states import Status

from .events import forget_events
from .rules import Place

if TYPE_CHECKING:
    from pulse_django.queue.job import JobRow


CANCEL_LIMIT = 1_000  # members in one statement

_LOCK_PARENT = (
    "SELECT finished_at IS NOT NULL, cancelled_at, cancel_reason FROM pulse_django_batch WHERE id = %s FOR SHARE"
)

_INSERT = """
INSERT INTO pulse_django_batch (name, kind, parent_id, context, sealed_at, cancelled_at, cancel_reason)
VALUES (%s, %s, %s, %s::jsonb, %s, %s, %s)
RETURNING id
"""

_SEALED = """
WITH found AS MATERIALIZED (
    SELECT id, sealed_at IS NULL AS is_open, cancelled_at IS NOT NULL AS is_cancelled
    FROM pulse_django_batch
    WHERE id = %s
    FOR NO KEY UPDATE
),
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found WHERE is_open
),
sealed AS (
    UPDATE pulse_django_batch AS batch SET sealed_at = open.now FROM open WHERE batch.id = open.id
)"""
_ANSWER = "SELECT is_open OR is_cancelled FROM found\n"
_SEAL = f"""{_SEALED},
noted AS (
    INSERT INTO pulse_django_unresolved (batch_id) SELECT id FROM found
)
{_ANSWER}"""  # noqa: S608 - made of constants
SEAL_ALONE = f"{_SEALED}\n{_ANSWER}"

TREE = """
WITH RECURSIVE tree (id) AS (
    SELECT %s::bigint
    UNION
    SELECT batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
)"""

_FOUND = f"""{TREE},
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND {{which}}
    ORDER BY id
    FOR NO KEY UPDATE
),"""  # noqa: S608 - made of constants
_OPEN = f"""{_FOUND.format(which="finished_at IS NULL AND {which}")}
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),"""  # noqa: S608 - made of constants

_CANCEL = f"""{_OPEN.format(which="cancelled_at IS NULL")}
cancelled AS (
    UPDATE pulse_django_batch AS batch
    SET cancelled_at = open.now, sealed_at = COALESCE(batch.sealed_at, open.now), cancel_reason = %s
    FROM open
    WHERE batch.id = open.id
    RETURNING batch.id
)
SELECT id FROM cancelled
"""  # noqa: S608 - made of constants

NOTE = "INSERT INTO pulse_django_unresolved (batch_id) SELECT pg_catalog.unnest(%s::bigint[]) RETURNING batch_id"

_MEMBERS_TO_CANCEL = """
SELECT job.id, batch.cancel_reason
FROM pulse_django_batch AS batch
CROSS JOIN LATERAL (
    SELECT id
    FROM pulse_django_job_hot
    WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL AND cancel_requested_at IS NULL
    ORDER BY id
    LIMIT %s
) AS job
WHERE batch.id = %s AND batch.cancelled_at IS NOT NULL
"""


def members_of(jobs: JobQuerySet[Any], batch_id: int) -> JobQuerySet[Any]:
    """Return those of these jobs that belong to a batch. Unfinished members are in two partial indexes."""
    return jobs.filter(Q(finished_at__isnull=True) | Q(finished_at__isnull=False), batch_id=batch_id)


def open_batch(
    jobs: JobReader, name: str, *, kind: str = "batch", parent_id: int | None = None, context: str | None = None
) -> int:
    """Open a batch in the caller's transaction and return its id. Within a cancelled batch it is cancelled at once."""
    with joined(jobs.write_alias):
        cancelled_at, reason = None, ""
        if parent_id is not None:
            found = run_joined(jobs.write_alias, _LOCK_PARENT, [parent_id])
            if not found:
                raise InvalidWorkflow(f"parent: there is no batch {parent_id}")
            is_finished, cancelled_at, reason = found[0]
            if is_finished and cancelled_at is None:
                raise BatchFinished(f"batch {parent_id} is finished: all of its jobs are over")
        values = [name, kind, parent_id, context, cancelled_at, cancelled_at, reason]
        [(batch_id,)] = run_joined(jobs.write_alias, _INSERT, values)
    return int(batch_id)


class Sealing(Statements):
    """The statement that seals a batch."""

    def seal(self, batch_id: int) -> list[Row]:
        """Return whether the batch was open. No row: there is none."""
        return run_joined(self.alias, _SEAL, [batch_id])


def seal_batch(jobs: JobReader, batch_id: int) -> None:
    """Declare that all members were added. Running members may still add others. Cancelling a batch seals it, too."""
    found = statements_for(Sealing, jobs.write_alias).seal(batch_id)
    if not found:
        raise InvalidWorkflow(f"there is no batch {batch_id}")
    if not found[0][0]:
        raise InvalidWorkflow(f"batch {batch_id} is already sealed")


def cancel_batch(jobs: JobReader, batch_id: int, *, reason: str = "") -> list[int]:
    """Cancel a batch and all within it, in the caller's transaction. Return which batches were not cancelled before.

    Their members are cancelled after the commit. A process that dies meanwhile leaves them to
    the next ``resolve``.
    """
    with joined(jobs.write_alias):
        rows = run_joined(jobs.write_alias, _CANCEL, [batch_id, clean_text(reason, MAX_SUMMARY)])
        cancelled = sorted(found for (found,) in rows)
        if cancelled:
            run_joined(jobs.write_alias, NOTE, [cancelled])
    return cancelled


def members_to_cancel(jobs: JobReader, batch_id: int, *, limit: int = CANCEL_LIMIT) -> tuple[list[int], str]:
    """Return the next members of a cancelled batch that were not cancelled yet, and the reason."""
    rows = run_joined(jobs.write_alias, _MEMBERS_TO_CANCEL, [limit, batch_id])
    return [job_id for job_id, _ in rows], rows[0][1] if rows else ""


# Add jobs to a batch, in the transaction that enqueues them. A part of ``enqueue``.
#
# The batch is locked FOR SHARE until the commit: many callers can add to it at once, and it is not finished, sealed or
# cancelled meanwhile.


_LOCK = """
SELECT id, finished_at IS NOT NULL, cancelled_at IS NOT NULL, cancel_reason
FROM pulse_django_batch
WHERE id = ANY (%s::bigint[])
ORDER BY id
FOR SHARE
"""
# A key may belong to an earlier job, whose id is smaller than an id that was taken before these jobs were added.
_JOINED = """
SELECT id, batch_id FROM pulse_django_job_hot WHERE id = ANY (%s::bigint[]) AND id > %s AND batch_id IS NOT NULL
"""
_OF_BATCHES = """
SELECT id FROM pulse_django_job_hot WHERE id = ANY (%s::bigint[]) AND batch_id = ANY (%s::bigint[])
"""
_NOTE_ADDED = """
INSERT INTO pulse_django_unresolved (batch_id, added)
SELECT * FROM ROWS FROM (pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::int[])) AS added (batch_id, count)
RETURNING id
"""


def of_batches(jobs: JobReader, job_ids: Sequence[int], batches: Sequence[int]) -> set[int]:
    """Return those of these unfinished jobs that belong to one of these batches."""
    return {job_id for (job_id,) in run_joined(jobs.write_alias, _OF_BATCHES, [list(job_ids), sorted(set(batches))])}


def _batch_of(new: NewJob) -> int | None:
    return new.place.batch_id if isinstance(new.place, Place) else None


def _is_placed(new: NewJob) -> bool:
    return _batch_of(new) is not None


class Joining(AroundInsert):
    """Adds jobs to their batch."""

    field = "place"

    def concerns(self, new: NewJob) -> bool:
        return _is_placed(new)

    def one(
        self, jobs: JobReader, new: NewJob, enqueue: Callable[[JobReader, NewJob], Added | JobRow]
    ) -> Added | JobRow:
        """Enqueue one job of a batch."""
        with joined(jobs.write_alias):
            reasons = lock_batches(jobs, [new])
            added, batch_id = enqueue(jobs, new), _batch_of(new)
            if isinstance(added, Added):
                note_added(jobs, Counter({batch_id: 1}))
                if batch_id in reasons:
                    cancel_late(jobs, {added.id: batch_id}, reasons)
                    added.values |= {"status": Status.CANCELLED.value, "cancel_reason": reasons[batch_id]}
        return added

    def many(
        self, jobs: JobReader, new_jobs: Sequence[NewJob], enqueue: Callable[[], list[int]], *, are_new: bool
    ) -> list[int]:
        placed = [new for new in new_jobs if _is_placed(new)]
        if not placed:
            return enqueue()
        with joined(jobs.write_alias):
            reasons = lock_batches(jobs, placed)
            before = 0 if are_new else take_ids(jobs.write_alias, 1)[0]
            ids = enqueue()
            if are_new:
                added = zip(ids, new_jobs, strict=True)
                joined_by = {job_id: _batch_of(new) for job_id, new in added if _is_placed(new)}
            else:
                joined_by = dict(run_joined(jobs.write_alias, _JOINED, [ids, before]))
            if joined_by:
                note_added(jobs, Counter(joined_by.values()))
            if late := {job_id: batch_id for job_id, batch_id in joined_by.items() if batch_id in reasons}:
                cancel_late(jobs, late, reasons)
        return ids


def lock_batches(jobs: JobReader, placed: Sequence[NewJob]) -> dict[int | None, str]:
    """Keep these batches open until the commit. Return those that are cancelled, with the reason."""
    wanted = sorted({batch_id for new in placed if (batch_id := _batch_of(new)) is not None})
    found = {batch_id: rest for batch_id, *rest in run_joined(jobs.write_alias, _LOCK, [wanted])}
    for batch_id in wanted:
        if batch_id not in found:
            raise InvalidJob(f"batch: there is no batch {batch_id}")
        if found[batch_id][0] and not found[batch_id][1]:
            raise BatchFinished(f"batch {batch_id} is finished: all of its jobs are over. Open another batch")
    return {batch_id: reason for batch_id, (_, is_cancelled, reason) in found.items() if is_cancelled}


def note_added(jobs: JobReader, added: Counter[int | None]) -> None:
    """Count new members. ``resolve`` adds them to the batch's row, so that no caller waits for it."""
    run_joined(jobs.write_alias, _NOTE_ADDED, [list(added), list(added.values())])


def cancel_late(jobs: JobReader, of_batches: dict[int, int | None], reasons: dict[int | None, str]) -> None:
    """Cancel jobs that were added to a cancelled batch, before they become visible."""
    for batch_id, reason in reasons.items():
        late = [job_id for job_id, batch in of_batches.items() if batch == batch_id]
        if late:
            request_cancel(jobs, late, reason=reason)


# Count the ended members of batches, and close batches whose members have all ended. A part of ``resolve``.


_LOCK_BATCHES = """
SELECT id FROM pulse_django_batch WHERE id = ANY (%s::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""

# In the statement after the one that took the locks, so that it sees all earlier commits. Members end in about the
# order of their ids, so the search for an unfinished one begins at the end.
#
# ``late`` names the batches that are not in ``fact``: on Citus, a step sees the writes of earlier steps, and a batch
# that was finished just now would be counted twice.
JUDGED = """
WITH news AS MATERIALIZED (
    SELECT
        batch_id, pg_catalog.sum(added)::bigint AS added, pg_catalog.sum(completed)::bigint AS completed,
        pg_catalog.sum(cancelled)::bigint AS cancelled, pg_catalog.bool_or(died) AS has_died
    FROM pulse_django_unresolved
    WHERE id = ANY (%s::bigint[]) AND batch_id = ANY (%s::bigint[])
    GROUP BY batch_id
),
fact AS MATERIALIZED (
    SELECT
        batch.id, batch.parent_id, batch.sealed_at, batch.cancelled_at, batch.died_at, batch.ended_at,
        batch.added + news.added AS added, batch.completed + news.completed AS completed,
        batch.cancelled + news.cancelled AS cancelled, news.has_died,
        EXISTS (
            SELECT 1 FROM (
                SELECT 1 FROM pulse_django_job_hot
                WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL
                ORDER BY id DESC
                LIMIT 1
            ) AS open
        ) AS has_open,
        EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
        ) AS has_dead,
        batch.cancelled_at IS NOT NULL AND EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL AND cancel_requested_at IS NULL
        ) AS has_wanted,
        child.has_open AS has_open_child, child.has_busy AS has_busy_child, child.has_dead AS has_dead_child
    FROM news
    JOIN pulse_django_batch AS batch ON batch.id = news.batch_id
    CROSS JOIN LATERAL (
        SELECT
            count(*) > 0 AS has_open, COALESCE(pg_catalog.bool_or(ended_at IS NULL), false) AS has_busy,
            COALESCE(pg_catalog.bool_or(died_at IS NOT NULL), false) AS has_dead
        FROM pulse_django_batch
        WHERE parent_id = batch.id AND finished_at IS NULL
    ) AS child
    WHERE batch.finished_at IS NULL
),
verdict AS MATERIALIZED (
    SELECT
        fact.*,
        COALESCE(died_at, CASE WHEN has_died OR has_dead OR has_dead_child THEN clock_timestamp() END) AS dies_at,
        COALESCE(ended_at, CASE WHEN is_ended THEN clock_timestamp() END) AS ends_at,
        CASE
            WHEN is_ended AND NOT has_open_child AND (cancelled_at IS NOT NULL OR NOT has_dead) THEN clock_timestamp()
        END AS finishes_at
    FROM fact
    CROSS JOIN LATERAL (SELECT sealed_at IS NOT NULL AND NOT has_open AND NOT has_busy_child) AS met (is_ended)
),
judged AS (
    UPDATE pulse_django_batch AS batch
    SET added = verdict.added,
        completed = verdict.completed,
        cancelled = verdict.cancelled,
        died_at = verdict.dies_at,
        ended_at = verdict.ends_at,
        finished_at = verdict.finishes_at
    FROM verdict
    WHERE batch.id = verdict.id
),
late AS MATERIALIZED (
    SELECT
        batch.id, batch.added + news.added AS added, batch.completed + news.completed AS completed,
        batch.cancelled + news.cancelled AS cancelled
    FROM news
    JOIN pulse_django_batch AS batch ON batch.id = news.batch_id
    WHERE batch.finished_at IS NOT NULL AND batch.id <> ALL (ARRAY(SELECT id FROM fact))
),
added_late AS (
    UPDATE pulse_django_batch AS batch
    SET added = late.added, completed = late.completed, cancelled = late.cancelled
    FROM late
    WHERE batch.id = late.id AND batch.finished_at IS NOT NULL
)"""
AGAIN = """
    SELECT parent_id, dies_at IS DISTINCT FROM died_at
    FROM verdict
    WHERE parent_id IS NOT NULL AND (
        finishes_at IS NOT NULL OR dies_at IS DISTINCT FROM died_at OR ends_at IS DISTINCT FROM ended_at
    )
    UNION ALL
    SELECT id, false FROM verdict WHERE has_wanted"""
_JUDGE_BATCHES = f"""{JUDGED},
again AS (
    INSERT INTO pulse_django_unresolved (batch_id, died){AGAIN}
    RETURNING id
)
SELECT id, finishes_at IS NOT NULL, has_wanted, EXISTS (SELECT 1 FROM again) FROM verdict
"""  # noqa: S608 - made of constants


class Judging(Statements):
    """The statement that counts ended members."""

    def judge(self, rows: list[int], locked: list[int]) -> list[Row]:
        """Return of each batch its id, whether it finishes, has members to cancel, and changes another batch."""
        return run_joined(self.alias, _JUDGE_BATCHES, [rows, locked])


class JudgedBatches(NamedTuple):
    """The effects on batches."""

    locked: list[int]  # the others are left for a later call
    finished: frozenset[int] = frozenset()
    cancelling: frozenset[int] = frozenset()  # with members that were not asked to stop yet
    has_more: bool = False  # other batches change because of it


def judge_batches(alias: str, rows: Collection[int], batches: Collection[int]) -> JudgedBatches:
    """Count these changes of these batches, and close those that have ended."""
    locked = [batch_id for (batch_id,) in run_joined(alias, _LOCK_BATCHES, [sorted(batches)])]
    if not locked:
        return JudgedBatches([])
    judged = statements_for(Judging, alias).judge(list(rows), locked)
    finished = frozenset(batch_id for batch_id, finishes, *_ in judged if finishes)
    cancelling = frozenset(batch_id for batch_id, _, has_wanted, *_ in judged if has_wanted)
    return JudgedBatches(locked, finished, cancelling, has_more=any(row[3] for row in judged))


# Pause and resume a batch: between the two none of its jobs starts.
#
# Jobs that are ready to run go back to WAITING, a thousand at a time, and ``resolve`` frees no job of a paused batch.
# Running jobs continue. If one is retried, or if a job is added, a sweep of a watchdog holds it.


HOLD_LIMIT = 1_000

_PAUSE = f"""{_OPEN.format(which="paused_at IS NULL")}
written AS (
    UPDATE pulse_django_batch AS batch SET paused_at = open.now FROM open WHERE batch.id = open.id RETURNING batch.id
)
SELECT id FROM written
"""  # noqa: S608 - made of constants

_RESUME = f"""{_FOUND.format(which="paused_at IS NOT NULL")}
resumed AS (
    UPDATE pulse_django_batch AS batch SET paused_at = NULL FROM found WHERE batch.id = found.id
)
SELECT id FROM found
"""  # noqa: S608 - made of constants

# In the statement after the one that took the locks: transactions that held a job because of the pause have committed.
_NOTE_WAITING = """
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
    WHERE paused_at IS NOT NULL AND finished_at IS NULL AND EXISTS (
        SELECT 1 FROM pulse_django_job_hot
        WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NULL AND {IS_CLAIMABLE}
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
        WHERE batch_id = paused.id AND batch_id IS NOT NULL AND finished_at IS NULL AND {IS_CLAIMABLE}
        ORDER BY id
        LIMIT %s
    ) AS job
    LIMIT %s
),
locked AS MATERIALIZED (
    SELECT id
    FROM pulse_django_job_hot
    WHERE id = ANY (ARRAY(SELECT id FROM found)) AND {IS_CLAIMABLE}
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
            run_joined(jobs.write_alias, _NOTE_WAITING, [resumed])
    return resumed


def hold(jobs: JobReader, *, limit: int = HOLD_LIMIT) -> list[int]:
    """Let up to ``limit`` jobs of paused batches wait that are ready to run. Return which."""
    return [job_id for (job_id,) in run_joined(jobs.write_alias, _HOLD, [limit, limit])]


# Delete batches that finished long ago, and keep the results of those that are open.


BATCHES_LIMIT = 1_000

# A batch with nested batches is deleted after them.
_BATCHES = """
WITH old AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch AS batch
    WHERE finished_at < statement_timestamp() - %s::float8 * interval '1 second' AND finished_at IS NOT NULL
        AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE batch_id = batch.id AND batch_id IS NOT NULL)
        AND NOT EXISTS (SELECT 1 FROM pulse_django_batch AS child WHERE child.parent_id = batch.id)
        AND NOT EXISTS (
            SELECT 1 FROM pulse_django_dependency
            WHERE needs_batch = batch.id AND needs_batch IS NOT NULL AND met_at IS NULL
        )
    ORDER BY finished_at
    LIMIT %s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse_django_batch AS batch USING old WHERE batch.id = old.id RETURNING batch.id
"""

# Jobs that wait may read the results of members of open batches. %(limit)s of a day that is to be dropped.
KEPT_RESULTS = """
    SELECT job.id
    FROM pulse_django_batch AS batch
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulse_django_job
        WHERE era = %(era)s AND batch_id = batch.id AND batch_id IS NOT NULL
        ORDER BY id
        LIMIT %(limit)s
    ) AS job
    WHERE batch.finished_at IS NULL
    LIMIT %(limit)s
"""


def forget_batches(jobs: JobReader, *, older_than: timedelta) -> int:
    """Delete old batches without jobs, and old events. Return the number of batches."""
    forget_events(jobs, older_than=older_than.total_seconds())
    return len(run_alone(jobs.write_alias, _BATCHES, [older_than.total_seconds(), BATCHES_LIMIT]))
