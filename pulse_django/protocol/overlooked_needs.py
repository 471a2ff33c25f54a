"""Look for jobs that wait in vain, and note them for ``resolve``.

Workers of a release without workflows end jobs without a note, and so does somebody who deletes rows by hand. A
watchdog walks through what waits, some thousand rows a minute.
"""

from __future__ import annotations

from contextlib import nullcontext

from django.db import connections

from pulse_django.store.citus import is_for_citus
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import joined, refuse_callers_transaction, run_joined

WALKED_AT_ONCE = 5_000

# What ended a moment ago has a note, and the jobs that need it are not overlooked.
_WAITING = """
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
                        SELECT 1 FROM pulse_django_batch WHERE id = need.needs_batch AND closed_at IS NULL
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
    WHERE closed_at IS NULL AND id > %s
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
            SELECT 1 FROM pulse_django_batch AS child WHERE child.parent_id = walked.id AND child.closed_at IS NULL
        )
        AND (ended_at IS NULL OR cancelled_at IS NOT NULL OR NOT EXISTS (
            SELECT 1 FROM pulse_django_job_hot
            WHERE batch_id = walked.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
        ))
)"""
_FOUND = "SELECT pg_catalog.max(id), (SELECT count(*) FROM overlooked)"
_WALK = f"""{{overlooked}},
noted AS (
    INSERT INTO pulse_django_unresolved ({{column}}) SELECT id FROM overlooked
)
{_FOUND} FROM walked
"""  # noqa: S608 - made of constants
# On Citus the notes are written by a statement of their own (docs/adr/0086).
_WALK_ON_CITUS = f"{{overlooked}}\n{_FOUND}, ARRAY(SELECT id FROM overlooked) FROM walked"  # noqa: S608 - constants
_NOTE = "INSERT INTO pulse_django_unresolved ({column}) SELECT pg_catalog.unnest(%s::bigint[]) RETURNING id"
_WALKS = {"job_id": _WAITING, "batch_id": _BATCHES}

_walked_until: dict[tuple[str, str], int] = {}  # by alias and walk: the last row that was looked at


def note_overlooked(jobs: JobReader, *, limit: int = WALKED_AT_ONCE) -> int:
    """Look at the next jobs and batches that wait, and note those that wait in vain. Return how many."""
    alias, found = jobs.write_alias, 0
    on_citus = is_for_citus(connections[alias])
    for column, walk in _WALKS.items():
        place = alias, column
        sql = (_WALK_ON_CITUS if on_citus else _WALK).format(overlooked=walk, column=column)
        refuse_callers_transaction(alias)
        with joined(alias) if on_citus else nullcontext():
            [(last, overlooked, *rest)] = run_joined(alias, sql, [_walked_until.get(place, 0), limit])
            if overlooked and on_citus:
                run_joined(alias, _NOTE.format(column=column), rest)
        _walked_until[place] = last or 0
        found += int(overlooked)
    return found
