"""The newest batches with their progress, and what holds each: three statements a page."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.transactions import Row, run_joined
from pulse_django.workflows.batch_progress import NOTHING, TREE, progress_of_each

from .facts import BatchFacts, Holder

PAGE = 100
MOST_HOLDERS = 5  # of each kind, of each batch of a list
MOST_HOLDERS_OF_ONE = 50
LOOKED_AT = 500  # members of a batch among which those are sought that wait for an event
MOST_ROWS = 5_000

_PAGE = """
SELECT
    id, name, kind, parent_id, created_at, sealed_at, finished_at, cancelled_at, cancel_reason, paused_at,
    EXTRACT(epoch FROM statement_timestamp() - created_at)::float8
FROM pulse_django_batch
WHERE {where}
ORDER BY id DESC
LIMIT %(most)s
"""
_BEFORE = "(%(before)s::bigint IS NULL OR id < %(before)s::bigint)"
_OPEN = "finished_at IS NULL"  # with the words of its index
_PARENTS = "parent_id IS NULL"

_HOLDERS = f"""{TREE}
SELECT tree.root, held.job_id, held.name, held.event
FROM tree
CROSS JOIN LATERAL (
    (
        SELECT id AS job_id, COALESCE(node::text, task::text) AS name, NULL::text AS event
        FROM pulse_django_job_hot
        WHERE batch_id = tree.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
        ORDER BY id
        LIMIT %(most)s
    )
    UNION ALL
    (
        SELECT waiting.id, COALESCE(waiting.node::text, waiting.task::text), need.needs_event::text
        FROM (
            SELECT id, node, task, status
            FROM pulse_django_job_hot
            WHERE batch_id = tree.id AND batch_id IS NOT NULL AND finished_at IS NULL
            ORDER BY id
            LIMIT {LOOKED_AT}
        ) AS waiting
        JOIN pulse_django_dependency AS need ON need.job_id = waiting.id
        WHERE waiting.status::text = 'WAITING' AND need.needs_event IS NOT NULL AND need.met_at IS NULL
        ORDER BY need.id
        LIMIT %(most)s
    )
) AS held
LIMIT {MOST_ROWS}
"""  # noqa: S608 - made of constants

_DEAD_LETTERS = f"""{TREE}
SELECT job.id
FROM tree
JOIN pulse_django_job_hot AS job ON job.batch_id = tree.id
WHERE job.batch_id IS NOT NULL AND job.finished_at IS NOT NULL AND job.id > %(after)s::bigint
ORDER BY job.id
LIMIT %(most)s
"""  # noqa: S608 - made of constants


def batches(
    alias: str, *, before: int | None = None, inside: bool = False, open_only: bool = False, most: int = PAGE
) -> list[BatchFacts]:
    """Return the newest batches; ``before``: only those with lower ids; ``inside``: also nested ones."""
    where = [_BEFORE, *([] if inside else [_PARENTS]), *([_OPEN] if open_only else [])]
    with read_only(alias):
        rows = run_joined(alias, _PAGE.format(where=" AND ".join(where)), {"before": before, "most": most})
        return facts_of(alias, rows)


def one_batch(alias: str, batch_id: int) -> BatchFacts | None:
    """Return a batch by its id, if there is one."""
    with read_only(alias):
        rows = run_joined(alias, _PAGE.format(where="id = %(id)s::bigint"), {"id": batch_id, "most": 1})
        return next(iter(facts_of(alias, rows, most_holders=MOST_HOLDERS_OF_ONE)), None)


def children(alias: str, batch_id: int, most: int) -> list[BatchFacts]:
    """Return the batches directly within a batch, without what holds them."""
    rows = run_joined(alias, _PAGE.format(where="parent_id = %(id)s::bigint"), {"id": batch_id, "most": most})
    return facts_of(alias, rows, most_holders=0)


def dead_letters_in(alias: str, batch_id: int, *, after: int = 0, most: int) -> list[int]:
    """Return the next dead letters of a batch and of those within it, by their ids."""
    rows = run_joined(alias, _DEAD_LETTERS, {"batches": [batch_id], "after": after, "most": most})
    return [job_id for (job_id,) in rows]


def facts_of(alias: str, rows: Sequence[Row], *, most_holders: int = MOST_HOLDERS) -> list[BatchFacts]:
    """Add progress and what holds them to rows of batches."""
    progress = progress_of_each(alias, [row[0] for row in rows])
    is_over = {row[0]: row[6] is not None for row in rows}
    holders = _holders(alias, [one for one in is_over if not is_over[one]], most_holders) if most_holders else {}
    found = [(*row, progress.get(row[0], NOTHING), holders.get(row[0], ())) for row in rows]
    return [BatchFacts(*values) for values in found]


def _holders(alias: str, open_batches: Sequence[int], most: int) -> dict[int, list[Holder]]:
    found: dict[int, list[Holder]] = defaultdict(list)
    for root, job_id, name, event in run_joined(alias, _HOLDERS, {"batches": list(open_batches), "most": most}):
        held = found[root]
        if sum((one.event is None) == (event is None) for one in held) < most:
            held.append(Holder(job_id=job_id, name=name, event=event))
    return found
