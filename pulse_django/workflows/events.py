"""Events: jobs that wait for one may run when it is sent."""

from __future__ import annotations

from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.transactions import joined, run_joined

_SEND = """
INSERT INTO pulse_django_event (name, payload, sent_by)
VALUES (%s, %s::jsonb, %s)
ON CONFLICT (name) DO NOTHING
RETURNING name
"""
_NOTE = "INSERT INTO pulse_django_unresolved (event) VALUES (%s) RETURNING id"

# Not an event that a job still waits for: it has been sent, but its need is not resolved yet.
_FORGET = """
WITH old AS MATERIALIZED (
    SELECT name
    FROM pulse_django_event AS event
    WHERE sent_at < statement_timestamp() - %s::float8 * interval '1 second' AND NOT EXISTS (
        SELECT 1 FROM pulse_django_dependency AS need
        WHERE need.needs_event::text = event.name::text AND need.needs_event IS NOT NULL AND need.met_at IS NULL
    )
    ORDER BY sent_at
    LIMIT %s
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse_django_event AS event USING old WHERE event.name::text = old.name::text RETURNING event.name
"""


def send_event(jobs: JobReader, name: str, payload: str | None, *, by: str = "") -> bool:
    """Store an event, in the caller's transaction. Return whether it is the first with its name."""
    with joined(jobs.write_alias):
        is_new = bool(run_joined(jobs.write_alias, _SEND, [name, payload, by]))
        if is_new:
            run_joined(jobs.write_alias, _NOTE, [name])
    return is_new


def forget_events(jobs: JobReader, *, older_than: float) -> int:
    """Delete events of this age in seconds that no job waits for. Return how many."""
    return len(run_joined(jobs.write_alias, _FORGET, [older_than, 1_000]))
