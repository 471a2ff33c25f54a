"""How far one job is, for the pages of end users: a token that opens the progress of one job, and what it shows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from pulse_django.exceptions import CannotDecrypt, DecryptionFailed, InvalidJob
from pulse_django.models import Job
from pulse_django.queue.words.display import share_of
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.job_ids import job_id_of
from pulse_django.queue.words.masks import PROGRESS
from pulse_django.queue.words.states import Status
from pulse_django.shards.placement import locate
from pulse_django.signed_texts import read_expiring, sign_for

from .codec import codec
from .notify import watch_progress

EXPIRES_IN = timedelta(days=1)
_SALT = "pulse_django.progress"


class Stage(StrEnum):
    """Where a job is, in the words of an end user."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


_STAGES = {
    Status.RUNNING: Stage.RUNNING,
    Status.COMPLETED: Stage.DONE,
    Status.DEAD_LETTERED: Stage.FAILED,
    Status.CANCELLED: Stage.CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    stage: Stage
    percent: int | None  # None: the handler has not said

    @property
    def is_over(self) -> bool:
        return self.stage in (Stage.DONE, Stage.FAILED, Stage.CANCELLED)


def progress_token(job: Job | int | str, *, expires_in: Seconds = EXPIRES_IN) -> str:
    """Return a text that lets who has it see how far one job is, and nothing else of it, until it expires.

    ``job`` is a job, its id, or the id of a ``TaskResult``. The token is signed, so none can be guessed or changed.
    """
    lasts = as_timedelta(expires_in)
    if lasts <= timedelta():
        raise InvalidJob(f"expires_in={expires_in!r} is not in the future")
    job_id = job.pk if isinstance(job, Job) else job_id_of(job)
    return sign_for(lasts, _SALT, job_id)


def job_of_token(token: str) -> int | None:
    """Return the id of the job that a token is for, or None if it is not ours or has expired."""
    found = read_expiring(_SALT, token)
    if found is None or found[1]:
        return None
    [job_id] = found[0]
    return int(job_id)


def progress_of(job_id: int | str) -> JobProgress:
    """Return how far a job is: one short statement. Raise ``Job.DoesNotExist`` if it was deleted.

    Its worker is told that somebody looks, at most once in five seconds.

    What this process cannot decrypt is shown as progress that the handler has not told.
    """
    where = locate(job_id)
    job = Job.objects.using(where.alias).only("id", "task", "sensitive", "status", "progress").get(pk=where.id)
    try:
        share = share_of(codec().value_of(job, PROGRESS))
    except (CannotDecrypt, DecryptionFailed):
        share = None
    if job.status == Status.RUNNING:
        watch_progress(where.alias, where.id)
    stage = _STAGES.get(Status(job.status), Stage.WAITING)
    percent = 100 if stage is Stage.DONE else None if share is None else int(share * 100)
    return JobProgress(stage=stage, percent=percent)
