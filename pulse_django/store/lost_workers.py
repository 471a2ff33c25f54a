"""A worker that disappears without a clean stop is lost until it is acknowledged or a worker of its name starts.

``stopped_at`` of a lost worker is when it was heard last, so queries for live workers do not find it.
"""

from __future__ import annotations

# A release that does not know of lost workers may have written that it lives again, and nothing else.
IS_LOST = "stopped_at IS NOT NULL AND lost_at IS NOT NULL AND acknowledged_at IS NULL"

# A worker that was given no name is named after its host and its process, and the next process has another number.
_NAME = """(CASE
                WHEN {0}.name::text = pg_catalog.concat({0}.host, '-', {0}.pid) THEN {0}.host ELSE {0}.name
            END)::text"""

MARK_LOST = f"""
WITH candidate AS MATERIALIZED (
    SELECT id, name, host, pid, last_beat_at, stopped_at IS NULL AS is_new
    FROM pulse_django_worker
    WHERE (stopped_at IS NULL AND last_beat_at < statement_timestamp() - %s::interval) OR ({IS_LOST})
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
),
found AS MATERIALIZED (
    SELECT
        id,
        is_new,
        CASE WHEN is_new THEN statement_timestamp() END AS lost_at,
        CASE WHEN EXISTS (
            SELECT 1 FROM pulse_django_worker AS other
            WHERE other.id <> candidate.id AND other.started_at > candidate.last_beat_at
                AND {_NAME.format("other")} = {_NAME.format("candidate")}
        ) THEN statement_timestamp() END AS back_at
    FROM candidate
)
UPDATE pulse_django_worker AS worker
SET stopped_at = worker.last_beat_at,
    lost_at = COALESCE(found.lost_at, worker.lost_at),
    acknowledged_at = found.back_at,
    acknowledged_by = ''
FROM found
WHERE worker.id = found.id AND (found.is_new OR found.back_at IS NOT NULL)
RETURNING worker.name, worker.boot_id, found.is_new
"""  # noqa: S608 - made of constants

ACKNOWLEDGE = f"""
WITH lost AS MATERIALIZED (
    SELECT id FROM pulse_django_worker
    WHERE name::text = %s AND boot_id::text = %s AND {IS_LOST}
    FOR NO KEY UPDATE
),
known AS MATERIALIZED (
    SELECT id, statement_timestamp() AS now FROM lost
)
UPDATE pulse_django_worker AS worker
SET acknowledged_at = known.now, acknowledged_by = %s
FROM known
WHERE worker.id = known.id
RETURNING worker.id
"""  # noqa: S608 - made of constants

FORGET = f"""
DELETE FROM pulse_django_worker
WHERE (stopped_at < statement_timestamp() - %s::interval AND NOT ({IS_LOST}))
    OR stopped_at < statement_timestamp() - %s::interval
RETURNING id
"""  # noqa: S608 - made of constants
