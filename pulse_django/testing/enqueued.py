"""Say that a job was enqueued, and see what was enqueued instead."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_django.backend import new_job
from pulse_django.calls import checked
from pulse_django.models import Job
from pulse_django.registry import key_of
from pulse_django.states import CLAIMABLE

if TYPE_CHECKING:
    from pulse_django.taskapi import Task

MOST_SHOWN = 20


def assert_enqueued(task: Task, /, *args: Any, **kwargs: Any) -> Job:
    """Return the waiting job of this task with these arguments, or fail with a list of what waits."""
    wanted = new_job(task, *checked(task, args, kwargs))
    waiting = Job.objects.filter(status__in=CLAIMABLE).order_by("id")
    found: Job | None = waiting.filter(task=key_of(task), args=list(wanted.args), kwargs=dict(wanted.kwargs)).first()
    if found is not None:
        return found
    lines = [f"  {job.task} args={job.args} kwargs={job.kwargs}" for job in waiting[:MOST_SHOWN]]
    raise AssertionError(
        f"No waiting job {wanted.task} args={list(wanted.args)} kwargs={dict(wanted.kwargs)}. Waiting are:\n"
        + ("\n".join(lines) or "  none")
    )
