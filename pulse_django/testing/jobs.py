"""Find the job that a test names: by the job itself, a task result, or an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import router

from pulse_django.execution.placement import Located, locate, routers_alias
from pulse_django.models import Job

if TYPE_CHECKING:
    from pulse_django.execution.registry import TaskResult

    AnyJob = Job | TaskResult | Located | int | str


def place_of(job: AnyJob) -> Located:
    """Return the id of a job and the database that it lives in."""
    if isinstance(job, Located):
        return job
    if isinstance(job, Job):
        return locate(job.pk, _alias_of(job))
    return locate(job if isinstance(job, int | str) else job.id)


def _alias_of(job: Job) -> str:
    """What a router had read from a replica lives where it has writes go."""
    read_from = job._state.db
    return routers_alias() if read_from in (None, router.db_for_read(Job)) else read_from


def fresh(job: AnyJob) -> Job:
    """Return the job as it is now."""
    place = place_of(job)
    found: Job = Job.objects.using(place.alias).get(pk=place.id)
    return found
