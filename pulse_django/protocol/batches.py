"""Open, seal, cancel, pause and resume batches.

A batch knows little: its members say whether it is over. ``resolve`` asks them when one has ended.
"""

from __future__ import annotations

from typing import NamedTuple

from django.db import connections

from pulse_django.exceptions import BatchClosed, InvalidWorkflow
from pulse_django.store.citus import is_for_citus
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import joined, run_joined
from pulse_django.words.error_details import MAX_SUMMARY
from pulse_django.words.payloads import clean_text

CANCEL_LIMIT = 1_000  # members in one statement

_LOCK_PARENT = (
    "SELECT closed_at IS NOT NULL, cancelled_at, cancel_reason FROM pulse_django_batch WHERE id = %s FOR SHARE"
)

_OPEN = """
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
_SEAL_ALONE = f"{_SEALED}\n{_ANSWER}"

TREE = """
WITH RECURSIVE tree (id) AS (
    SELECT %s::bigint
    UNION
    SELECT batch.id FROM tree JOIN pulse_django_batch AS batch ON batch.parent_id = tree.id
)"""

_CANCEL = f"""{TREE},
found AS MATERIALIZED (
    SELECT id
    FROM pulse_django_batch
    WHERE id = ANY (ARRAY(SELECT id FROM tree)) AND closed_at IS NULL AND cancelled_at IS NULL
    ORDER BY id
    FOR NO KEY UPDATE
),
open AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now FROM found
),
cancelled AS (
    UPDATE pulse_django_batch AS batch
    SET cancelled_at = open.now, sealed_at = COALESCE(batch.sealed_at, open.now), cancel_reason = %s
    FROM open
    WHERE batch.id = open.id
    RETURNING batch.id
)
SELECT id FROM cancelled
"""  # noqa: S608 - made of constants

_NOTE = "INSERT INTO pulse_django_unresolved (batch_id) SELECT pg_catalog.unnest(%s::bigint[]) RETURNING batch_id"

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


class Parent(NamedTuple):
    is_closed: bool
    cancelled_at: object
    reason: str


def open_batch(
    jobs: JobReader, name: str, *, kind: str = "batch", parent_id: int | None = None, context: str | None = None
) -> int:
    """Open a batch in the caller's transaction and return its id. One within a cancelled batch is born cancelled."""
    with joined(jobs.write_alias):
        cancelled_at, reason = None, ""
        if parent_id is not None:
            found = run_joined(jobs.write_alias, _LOCK_PARENT, [parent_id])
            if not found:
                raise InvalidWorkflow(f"parent: there is no batch {parent_id}")
            parent = Parent(*found[0])
            if parent.is_closed and parent.cancelled_at is None:
                raise BatchClosed(f"batch {parent_id} is closed: all of its jobs are over")
            cancelled_at, reason = parent.cancelled_at, parent.reason
        [(batch_id,)] = run_joined(
            jobs.write_alias, _OPEN, [name, kind, parent_id, context, cancelled_at, cancelled_at, reason]
        )
    return int(batch_id)


def seal_batch(jobs: JobReader, batch_id: int) -> None:
    """Say that all members were added. Members that run may still add others. To cancel a batch seals it, too."""
    if is_for_citus(connections[jobs.write_alias]):  # a statement for the note (docs/adr/0086)
        with joined(jobs.write_alias):
            found = run_joined(jobs.write_alias, _SEAL_ALONE, [batch_id])
            run_joined(jobs.write_alias, _NOTE, [[batch_id] if found else []])
    else:
        found = run_joined(jobs.write_alias, _SEAL, [batch_id])
    if not found:
        raise InvalidWorkflow(f"there is no batch {batch_id}")
    if not found[0][0]:
        raise InvalidWorkflow(f"batch {batch_id} is sealed already")


def cancel_batch(jobs: JobReader, batch_id: int, *, reason: str = "") -> list[int]:
    """Cancel a batch and all within it, in the caller's transaction. Return which batches were not cancelled before.

    Their members are cancelled after the commit. A process that dies meanwhile leaves them to
    the next ``resolve``.
    """
    with joined(jobs.write_alias):
        rows = run_joined(jobs.write_alias, _CANCEL, [batch_id, clean_text(reason, MAX_SUMMARY)])
        cancelled = sorted(found for (found,) in rows)
        if cancelled:
            run_joined(jobs.write_alias, _NOTE, [cancelled])
    return cancelled


def members_to_cancel(jobs: JobReader, batch_id: int, *, limit: int = CANCEL_LIMIT) -> tuple[list[int], str]:
    """Return the next members of a cancelled batch that were not cancelled yet, and the reason."""
    rows = run_joined(jobs.write_alias, _MEMBERS_TO_CANCEL, [limit, batch_id])
    return [job_id for job_id, _ in rows], rows[0][1] if rows else ""
