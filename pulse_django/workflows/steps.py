"""Durable steps: store the result of a step of a handler, under the lease of the run.

The row of the job is locked until the commit, so that no watchdog can end the run between the check of the lease and
the INSERT: a run that starts afterwards sees the step, or the step was refused.
"""

from __future__ import annotations

from collections.abc import Collection

from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.transactions import Row, run_joined
from pulse_django.queue.words.leases import Lease

HELD = """
WITH held AS MATERIALIZED (
    SELECT id, attempts, token
    FROM pulse_django_job_hot
    WHERE id = %s AND locked_by::text = %s AND attempts = %s
    FOR NO KEY UPDATE
)"""

_STORE = f"""{HELD}
INSERT INTO pulse_django_step (job_id, name, number, attempt, token, result, seconds)
SELECT
    id, %s, 1 + (SELECT count(*) FROM pulse_django_step WHERE job_id = held.id), attempts, token, %s::jsonb, %s::float8
FROM held
RETURNING job_id
"""  # noqa: S608 - made of constants

BEGIN_SLEEP = """
    INSERT INTO pulse_django_step (job_id, name, number, attempt, token, seconds)
    SELECT id, %s, 1 + (SELECT count(*) FROM pulse_django_step WHERE job_id = held.id), attempts, token, %s::float8
    FROM {held}
    ON CONFLICT (job_id, name) DO NOTHING
    RETURNING at, seconds
"""
_SLEEP = f"""{HELD},
begun AS ({BEGIN_SLEEP.format(held="held")})
SELECT EXTRACT(epoch FROM at + seconds * interval '1 second' - clock_timestamp())::float8
FROM (
    SELECT at, seconds FROM begun
    UNION ALL
    SELECT step.at, step.seconds
    FROM held
    JOIN pulse_django_step AS step ON step.job_id = held.id AND step.name::text = %s
) AS sleep
"""  # noqa: S608 - made of constants

_OF_JOB = "SELECT name, result::text, number, at FROM pulse_django_step WHERE job_id = %s ORDER BY number"

_FORGET = """
DELETE FROM pulse_django_step WHERE job_id = %s AND number >= %s RETURNING name
"""

_COPY = """
INSERT INTO pulse_django_step (job_id, name, number, attempt, token, result, at, seconds)
SELECT %s, name, number, attempt, token, result, at, seconds
FROM pulse_django_step
WHERE job_id = %s AND number < %s
RETURNING name
"""


def store_step(jobs: JobReader, lease: Lease, name: str, result: str | None, seconds: float) -> bool:
    """Store a step, in the caller's transaction. Return False, and store nothing, if the lease was lost."""
    return bool(run_joined(jobs.write_alias, _STORE, [*lease, name, result, seconds]))


class Sleeping(Statements):
    """The statement that begins a sleep."""

    def begin(self, lease: Lease, name: str, seconds: float) -> list[Row]:
        """Return the seconds that are left. No row: the lease was lost."""
        return run_joined(self.alias, _SLEEP, [*lease, name, seconds, name])


def begin_sleep(jobs: JobReader, lease: Lease, name: str, seconds: float) -> float | None:
    """Store that a job sleeps from now on, unless it is already stored.

    Return how many seconds are left, or None if the lease was lost.
    """
    rows = statements_for(Sleeping, jobs.write_alias).begin(lease, name, seconds)
    return float(rows[0][0]) if rows else None


def steps_of(alias: str, job_id: int) -> list[Row]:
    """Return the steps of a job in order: name, result as JSON, number and instant."""
    return run_joined(alias, _OF_JOB, [job_id])


def forget_steps(jobs: JobReader, job_id: int, *, first: int) -> Collection[str]:
    """Delete the steps from this number on, in the caller's transaction. Return their names."""
    return [name for (name,) in run_joined(jobs.write_alias, _FORGET, [job_id, first])]


def copy_steps(jobs: JobReader, job_id: int, *, to: int, first: int) -> Collection[str]:
    """Give another job the steps before this number, in the caller's transaction. Return their names."""
    return [name for (name,) in run_joined(jobs.write_alias, _COPY, [to, job_id, first])]
