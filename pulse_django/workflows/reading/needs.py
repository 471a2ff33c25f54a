"""The needs of a job, and the jobs that need it: one statement each."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.states import Status
from pulse_django.workflows.batch_progress import members
from pulse_django.workflows.rules import OnNeedFailed, When

MOST_NEEDS = 200
MOST_NEEDED_BY = 50
MOST_DEAD = 10  # dead letters of a batch that are named
LOOKED_AT = 1_000  # members of its batch among which those are sought that needed it

_NEEDS = f"""
SELECT
    need.needs, need.needs_batch, need.needs_event::text, need.name::text, need.on_need_failed::text, need.moment::text,
    need.until, need.met_at, need.met::text,
    COALESCE(job.node::text, job.task::text, batch.name::text, need.needs_event::text, ''), job.status::text,
    batch.sealed_at IS NOT NULL, batch.paused_at IS NOT NULL,
    ARRAY(
        WITH RECURSIVE tree (id) AS (
            SELECT need.needs_batch WHERE need.met_at IS NULL AND need.needs_batch IS NOT NULL
            UNION
            SELECT inner_batch.id FROM tree JOIN pulse_django_batch AS inner_batch ON inner_batch.parent_id = tree.id
        )
        SELECT dead.id
        FROM tree
        JOIN pulse_django_job_hot AS dead ON dead.batch_id = tree.id
        WHERE dead.batch_id IS NOT NULL AND dead.finished_at IS NOT NULL
        LIMIT {MOST_DEAD}
    )
FROM (
    SELECT *
    FROM pulse_django_dependency
    WHERE job_id = %(job)s::bigint AND (NOT %(unmet)s OR met_at IS NULL)
    ORDER BY id
    LIMIT %(most)s
) AS need
LEFT JOIN LATERAL (SELECT node, task, status FROM pulse_django_job WHERE id = need.needs LIMIT 1) AS job ON true
LEFT JOIN pulse_django_batch AS batch ON batch.id = need.needs_batch
ORDER BY need.id
"""  # noqa: S608 - made of constants

# No index finds a met need by the job that was needed, so this searches the members of the batch.
_NEEDED_BY = f"""
SELECT job.id, COALESCE(job.node::text, job.task::text), job.status::text, need.is_met
FROM (
    SELECT job_id, false AS is_met
    FROM pulse_django_dependency
    WHERE needs = %(job)s::bigint AND needs IS NOT NULL AND met_at IS NULL
    UNION
    SELECT need.job_id, true
    FROM ({members("id", "%(batch)s::bigint", str(LOOKED_AT))}) AS member
    JOIN pulse_django_dependency AS need ON need.job_id = member.id
    WHERE need.needs = %(job)s::bigint AND need.met_at IS NOT NULL
) AS need
JOIN pulse_django_job AS job ON job.id = need.job_id
ORDER BY job.id
LIMIT {MOST_NEEDED_BY}
"""  # noqa: S608 - made of constants


class NeedFacts(NamedTuple):
    """One thing that a job needs."""

    job: int | None
    batch: int | None
    event: str | None
    known_as: str  # the name of the result in the handler
    on_need_failed: str
    moment: str
    until: datetime | None  # the job waits no longer for the event
    met_at: datetime | None
    met: str | None
    name: str  # of the job in its workflow, of its task, of the batch or of the event
    status: str | None  # of the job
    is_sealed: bool  # the batch
    is_paused: bool
    dead: list[int]  # dead letters of the batch, if they are waited for

    @property
    def held_by(self) -> list[int]:
        """The dead letters that hold the jobs that need this."""
        if self.met_at is not None or self.on_need_failed != OnNeedFailed.WAIT:
            return []
        if self.job is not None:
            return [self.job] if self.status == Status.DEAD_LETTERED else []
        return self.dead if self.moment == When.FINISHED else []


class NeededBy(NamedTuple):
    """A job that needs another."""

    id: int
    name: str
    status: str
    is_met: bool


def needs_of(alias: str, job_id: int, *, unmet_only: bool = False, most: int = MOST_NEEDS) -> list[NeedFacts]:
    """Return the needs of a job, in the order in which they were stored."""
    params = {"job": job_id, "unmet": unmet_only, "most": most}
    with read_only(alias):
        return [NeedFacts(*row) for row in run_joined(alias, _NEEDS, params)]


def needed_by(alias: str, job_id: int, batch_id: int | None) -> list[NeededBy]:
    """Return the jobs that need one: all that wait for it, and the first of its batch that waited for it."""
    with read_only(alias):
        return [NeededBy(*row) for row in run_joined(alias, _NEEDED_BY, {"job": job_id, "batch": batch_id})]
