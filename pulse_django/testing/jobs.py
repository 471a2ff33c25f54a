"""Whatever a test has in hand names a job: the job itself, a task's result, or an id."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pulse_django.job_ids import job_id_of
from pulse_django.models import Job

if TYPE_CHECKING:
    from pulse_django.taskapi import TaskResult

    AnyJob = Job | TaskResult | int | str


def id_of(job: AnyJob) -> int:
    return job_id_of(job if isinstance(job, int | str) else job.id)


def fresh(job: AnyJob) -> Job:
    """Return the job as it is now."""
    found: Job = Job.objects.get(pk=id_of(job))
    return found
