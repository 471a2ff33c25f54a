"""Queries of batches whose cost does not depend on their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pulse_django.queue.database.transactions import run_joined

# For each of the batches: itself, and those within it.
TREE = """
WITH RECURSIVE tree (root, id) AS (
    SELECT asked.id, asked.id FROM pg_catalog.unnest(%(batches)s::bigint[]) AS asked (id)
    UNION
    SELECT tree.root, batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
)"""

# Dead letters are counted in their index; other jobs were counted when they ended. Nested batches count too.
_PROGRESS = f"""{TREE}
SELECT
    tree.root,
    COALESCE(pg_catalog.sum(batch.added + news.added)::bigint, 0),
    COALESCE(pg_catalog.sum(batch.completed + news.completed)::bigint, 0),
    COALESCE(pg_catalog.sum(batch.cancelled + news.cancelled)::bigint, 0),
    COALESCE(pg_catalog.sum(dead.count)::bigint, 0)
FROM tree
JOIN pulse_django_batch AS batch ON batch.id = tree.id
CROSS JOIN LATERAL (
    SELECT
        COALESCE(pg_catalog.sum(added)::bigint, 0) AS added,
        COALESCE(pg_catalog.sum(completed)::bigint, 0) AS completed,
        COALESCE(pg_catalog.sum(cancelled)::bigint, 0) AS cancelled
    FROM pulse_django_unresolved
    WHERE batch_id = batch.id AND batch_id IS NOT NULL
) AS news
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM pulse_django_job_hot
    WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
) AS dead
GROUP BY tree.root
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class BatchProgress:
    """The progress of a batch."""

    total: int
    completed: int
    cancelled: int
    dead: int

    @property
    def open(self) -> int:
        """Jobs that wait or run."""
        return max(0, self.total - self.completed - self.cancelled - self.dead)

    @property
    def done(self) -> int:
        """Jobs that have ended."""
        return self.completed + self.cancelled

    @property
    def percent(self) -> int:
        """The percentage of ended jobs, rounded down: 100 only if all have ended."""
        return 100 if not self.total else self.done * 100 // self.total


NOTHING = BatchProgress(total=0, completed=0, cancelled=0, dead=0)


def progress_of(alias: str, batch_id: int) -> BatchProgress:
    """Count the jobs of a batch and of the batches within it."""
    return progress_of_each(alias, [batch_id]).get(batch_id, NOTHING)


def progress_of_each(alias: str, batch_ids: Sequence[int]) -> dict[int, BatchProgress]:
    """Count the jobs of several batches, in one statement."""
    rows = run_joined(alias, _PROGRESS, {"batches": list(batch_ids)})
    return {batch_id: BatchProgress(*counts) for batch_id, *counts in rows}


def members(columns: str, batch: str, most: str) -> str:
    """Return the SQL that reads the first members of a batch by their ids: of each index that holds some, in order."""
    of_batch = f"batch_id = {batch} AND batch_id IS NOT NULL"
    parts = (
        f"pulse_django_job_hot WHERE {of_batch} AND finished_at IS NULL",
        f"pulse_django_job_hot WHERE {of_batch} AND finished_at IS NOT NULL",
        f"pulse_django_job WHERE {of_batch} AND era <> 0",
    )
    all_parts = "\nUNION ALL\n".join(f"(SELECT {columns} FROM {part} ORDER BY id LIMIT {most})" for part in parts)  # noqa: S608 - made of constants
    return f"SELECT * FROM ({all_parts}) AS member ORDER BY id LIMIT {most}"  # noqa: S608 - made of constants
