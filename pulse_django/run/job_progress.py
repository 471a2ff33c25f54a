"""The progress of one job for end users: a signed token that gives access to it, and the progress itself."""

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
    """The state of a job, in simple terms for end users."""

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
    percent: int | None  # None: not reported

    @property
    def is_over(self) -> bool:
        return self.stage in (Stage.DONE, Stage.FAILED, Stage.CANCELLED)


def progress_token(job: Job | int | str, *, expires_in: Seconds = EXPIRES_IN) -> str:
    """Return a token that gives access to the progress of one job, and to nothing else, until it expires.

    ``job`` is a job, its id, or the id of a ``TaskResult``. The token is signed, so it cannot be guessed or changed.
    """
    lifetime = as_timedelta(expires_in)
    if lifetime <= timedelta():
        raise InvalidJob(f"expires_in={expires_in!r} is not in the future")
    job_id = job.pk if isinstance(job, Job) else job_id_of(job)
    return sign_for(lifetime, _SALT, job_id)


def job_of_token(token: str) -> int | None:
    """Return the id of the token's job, or None if the token is invalid or has expired."""
    found = read_expiring(_SALT, token)
    if found is None or found[1]:
        return None
    [job_id] = found[0]
    return int(job_id)


def progress_of(job_id: int | str) -> JobProgress:
    """Return the progress of a job with one short query. Raise ``Job.DoesNotExist`` if it was deleted.

    Its worker is notified, at most once in five seconds, to save progress more often. Progress that this process cannot
    decrypt counts as not reported.
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
