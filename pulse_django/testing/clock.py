"""Move the instants of a job, as if time had passed. The server's clock stays what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse_django.store.transactions import run_joined

from .jobs import fresh, place_of

if TYPE_CHECKING:
    from .jobs import AnyJob

_EXPIRE = """
WITH held AS MATERIALIZED (
    SELECT id FROM pulse_django_job WHERE id = %s AND locked_by IS NOT NULL FOR NO KEY UPDATE
),
over AS MATERIALIZED (
    SELECT id, clock_timestamp() - interval '1 microsecond' AS lease_until FROM held
),
written AS (
    UPDATE pulse_django_job AS job SET lease_until = over.lease_until
    FROM over
    WHERE job.id = over.id AND job.locked_by IS NOT NULL
    RETURNING job.id
)
SELECT id FROM written
"""

_JUMP = """
WITH waiting AS MATERIALIZED (
    SELECT id FROM pulse_django_job WHERE id = %s AND finished_at IS NULL AND locked_by IS NULL FOR NO KEY UPDATE
),
due AS MATERIALIZED (
    SELECT id, clock_timestamp() AS next_run_at FROM waiting
),
written AS (
    UPDATE pulse_django_job AS job SET next_run_at = due.next_run_at
    FROM due
    WHERE job.id = due.id AND job.finished_at IS NULL AND job.locked_by IS NULL
    RETURNING job.id
)
SELECT id FROM written
"""


def expire_lease(job: AnyJob) -> None:
    """Let the lease of a running job run out: the next reap finds it."""
    if not _moved(job, _EXPIRE):
        raise AssertionError(f"{fresh(job)} is {fresh(job).status}: it has no lease")


def jump_to_next_run(job: AnyJob) -> None:
    """Let a waiting job be due now."""
    if not _moved(job, _JUMP):
        raise AssertionError(f"{fresh(job)} is {fresh(job).status}: it is not waiting")


def _moved(job: AnyJob, statement: str) -> bool:
    place = place_of(job)
    return bool(run_joined(place.alias, statement, [place.id]))
