"""Move the instants of a job, as if time had passed. The server's clock stays what it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse_django.store.transactions import run_joined

from .jobs import fresh, place_of

if TYPE_CHECKING:
    from .jobs import AnyJob

_EXPIRE = """
UPDATE pulse_django_job AS job SET lease_until = clock_timestamp() - interval '1 microsecond'
WHERE id = %s AND locked_by IS NOT NULL RETURNING id
"""

_JUMP = """
UPDATE pulse_django_job AS job SET next_run_at = clock_timestamp()
WHERE id = %s AND finished_at IS NULL AND locked_by IS NULL RETURNING id
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
