"""Arguments in the messages of failed tests, without what is masked: such messages stand in logs, too."""

from __future__ import annotations

from pulse_django.execution.masking import shown
from pulse_django.models import Job
from pulse_django.words.job_options import NewJob


def arguments_of(job: Job | NewJob) -> str:
    seen = shown(job.task, job.args, job.kwargs, job.masked)
    return "(its task is unknown here)" if seen is None else f"args={seen[0]} kwargs={seen[1]}"


def is_told_in_full(job: Job | NewJob) -> bool:
    """Say whether jobs that look alike have the same arguments."""
    return shown(job.task, job.args, job.kwargs, job.masked) == (list(job.args), dict(job.kwargs))
