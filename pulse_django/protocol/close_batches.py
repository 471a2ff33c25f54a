"""Judge batches whose members ended: count what ended, and close those that are over. A part of ``resolve``."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from django.db import connections

from pulse_django.store.citus import is_for_citus
from pulse_django.store.transactions import run_joined

_LOCK_BATCHES = """
SELECT id FROM pulse_django_batch WHERE id = ANY (%s::bigint[]) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED
"""

# In the statement after the one that took the locks, so that what was committed before they were taken is seen. Members
# end from the front, so the search for an open one begins at the back.
#
# ``late`` names what is not in ``fact``: the steps of Citus see what those before them wrote, and a batch that was
# closed just now would be counted twice.
_JUDGED = """
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
        WHERE parent_id = batch.id AND closed_at IS NULL
    ) AS child
    WHERE batch.closed_at IS NULL
),
verdict AS MATERIALIZED (
    SELECT
        fact.*,
        COALESCE(died_at, CASE WHEN has_died OR has_dead OR has_dead_child THEN clock_timestamp() END) AS dies_at,
        COALESCE(ended_at, CASE WHEN is_ended THEN clock_timestamp() END) AS ends_at,
        CASE
            WHEN is_ended AND NOT has_open_child AND (cancelled_at IS NOT NULL OR NOT has_dead) THEN clock_timestamp()
        END AS closes_at
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
        closed_at = verdict.closes_at
    FROM verdict
    WHERE batch.id = verdict.id
),
late AS MATERIALIZED (
    SELECT
        batch.id, batch.added + news.added AS added, batch.completed + news.completed AS completed,
        batch.cancelled + news.cancelled AS cancelled
    FROM news
    JOIN pulse_django_batch AS batch ON batch.id = news.batch_id
    WHERE batch.closed_at IS NOT NULL AND batch.id <> ALL (ARRAY(SELECT id FROM fact))
),
added_late AS (
    UPDATE pulse_django_batch AS batch
    SET added = late.added, completed = late.completed, cancelled = late.cancelled
    FROM late
    WHERE batch.id = late.id AND batch.closed_at IS NOT NULL
)"""
_AGAIN = """
    SELECT parent_id, dies_at IS DISTINCT FROM died_at
    FROM verdict
    WHERE parent_id IS NOT NULL AND (
        closes_at IS NOT NULL OR dies_at IS DISTINCT FROM died_at OR ends_at IS DISTINCT FROM ended_at
    )
    UNION ALL
    SELECT id, false FROM verdict WHERE has_wanted"""
_JUDGE_BATCHES = f"""{_JUDGED},
again AS (
    INSERT INTO pulse_django_unresolved (batch_id, died){_AGAIN}
    RETURNING id
)
SELECT id, closes_at IS NOT NULL, has_wanted, EXISTS (SELECT 1 FROM again) FROM verdict
"""  # noqa: S608 - made of constants
# On Citus the notes are answered, and written by a statement of their own (docs/adr/0086).
_JUDGE_ON_CITUS = f"""{_JUDGED},
again (batch_id, died) AS MATERIALIZED ({_AGAIN}
)
SELECT id, closes_at IS NOT NULL, has_wanted, ARRAY(SELECT batch_id FROM again), ARRAY(SELECT died FROM again)
FROM verdict
"""  # noqa: S608 - made of constants
_NOTE = """
INSERT INTO pulse_django_unresolved (batch_id, died)
SELECT * FROM ROWS FROM (pg_catalog.unnest(%s::bigint[]), pg_catalog.unnest(%s::boolean[])) AS again (batch_id, died)
RETURNING id
"""


class JudgedBatches(NamedTuple):
    """What became of batches."""

    locked: list[int]  # the others are left for a later call
    closed: frozenset[int] = frozenset()
    cancelling: frozenset[int] = frozenset()  # with members that were not asked to stop yet
    has_more: bool = False  # changes of other batches follow from it


def judge_batches(alias: str, rows: Collection[int], batches: Collection[int]) -> JudgedBatches:
    """Count what these changes say of these batches, and close the ones that are over."""
    locked = [batch_id for (batch_id,) in run_joined(alias, _LOCK_BATCHES, [sorted(batches)])]
    if not locked:
        return JudgedBatches([])
    if is_for_citus(connections[alias]):
        judged = run_joined(alias, _JUDGE_ON_CITUS, [list(rows), locked])
        if judged and judged[0][3]:
            run_joined(alias, _NOTE, judged[0][3:])
    else:
        judged = run_joined(alias, _JUDGE_BATCHES, [list(rows), locked])
    return JudgedBatches(
        locked,
        closed=frozenset(batch_id for batch_id, closes, *_ in judged if closes),
        cancelling=frozenset(batch_id for batch_id, _, has_wanted, *_ in judged if has_wanted),
        has_more=any(row[3] for row in judged),
    )
