"""What a project can do to its jobs, by id: look, cancel, retry, take back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from django.db import router

from . import conf
from .answers import CancelRequested, Report, Retried, Settled
from .backend import new_job
from .calls import checked
from .decisions import Decision, Retry, decide
from .exceptions import InvalidJob
from .job_ids import check_attempt, job_id_of, job_ids_of
from .leases import Lease
from .models import Job
from .outcomes import WorkerLost
from .querysets import JobQuerySet
from .registry import key_of
from .states import Status
from .taskapi import Task
from .wakeups import ANY_QUEUE, wake_workers

Arguments = Iterable[Any] | Mapping[str, Any]


def get(job_id: int | str) -> Job:
    """Return a job, or raise ``Job.DoesNotExist``."""
    job: Job = Job.objects.get(pk=job_id_of(job_id))
    return job


def jobs(*, status: Status | None = None, queue: str | None = None, task: Task | str | None = None) -> JobQuerySet:
    """Return jobs to look at. Reading them waits for nobody and keeps nobody waiting."""
    wanted = {"status": status, "queue": queue, "task": task if task is None or isinstance(task, str) else key_of(task)}
    found: JobQuerySet = Job.objects.filter(**{field: value for field, value in wanted.items() if value is not None})
    return found


def progress(job_id: int | str) -> Any:
    """Return what the job's handler last gave to ``context.progress()``, or None."""
    return Job.objects.values_list("progress", flat=True).get(pk=job_id_of(job_id))


def cancel(*job_ids: int | str, reason: str = "", children: bool = False) -> CancelRequested:
    """Cancel what is waiting and ask what is running to stop; with ``children`` also all that they enqueued."""
    ids = job_ids_of(job_ids)
    return Job.objects.request_cancel(Job.objects.family(ids) if children else ids, reason=reason)


def retry(*job_ids: int | str, runs: int = 1, delay: timedelta = timedelta(), attempt: int | None = None) -> Retried:
    """Revive dead letters, with at least ``runs`` more attempts each.

    With ``attempt``, only what died in that one: so a call whose answer was lost can be made again.
    """
    answer = Job.objects.retry(job_ids_of(job_ids), runs=runs, delay=delay, attempt=attempt)
    if answer.revived and not delay:
        _wake_workers(ANY_QUEUE)
    return answer


def release(*job_ids: int | str, reason: str = "taken back from its worker", attempt: int | None = None) -> Settled:
    """Take running jobs from their workers; they run again at once, or are dead letters if that was their last attempt.

    The attempt counts: its handler may still be at work, and finds its lease lost.

    With ``attempt``, only the run of that number is ended.
    """
    check_attempt(attempt)
    held = Job.objects.using(router.db_for_write(Job)).running().filter(pk__in=job_ids_of(job_ids))
    if attempt is not None:
        held = held.filter(attempts=attempt)
    reports = []
    for job in held:
        decision = decide(outcome := WorkerLost(reason), job.budget, max_losses=conf.current().max_losses)
        reports.append(Report(Lease(job.pk, str(job.locked_by), job.attempts), outcome, _at_once(decision)))
    settled = Job.objects.settle(reports)
    if settled.accepted:
        _wake_workers(ANY_QUEUE)
    return settled


def enqueue_many(
    task: Task, arguments: Iterable[Arguments], *, progress: Callable[[int], object] | None = None
) -> list[int]:
    """Enqueue a task once for each item: a mapping of keyword arguments, or a sequence of positional ones.

    All of them or none, in the caller's transaction if there is one. ``progress`` is called with the number of jobs
    written so far. Returns the jobs' ids in order. Django's ``task_enqueued`` is not sent for each.
    """
    new = new_job(task, (), {})
    ids: list[int] = Job.objects.enqueue_alike(
        new, (_checked(task, place, item) for place, item in enumerate(arguments)), progress=progress
    )
    if ids and task.run_after is None:
        _wake_workers(task.queue_name)
    return ids


def _checked(task: Task, place: int, item: Arguments) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(item, Mapping):
        return checked(task, (), item)
    if isinstance(item, str | bytes):
        kind = type(item).__name__
        raise InvalidJob(f"arguments[{place}]: {kind} is one value; write [value] for a single argument")
    return checked(task, list(item), {})


def _wake_workers(queue: str) -> None:
    wake_workers(router.db_for_write(Job), [queue])


def _at_once(decision: Decision) -> Decision:
    return replace(decision, delay=timedelta()) if isinstance(decision, Retry) else decision
