"""Functions that read, cancel, retry, amend, release and enqueue jobs, by id."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce
from operator import or_
from typing import Any

from django.db import ProgrammingError

from pulse_django.run import make_due

from . import conf
from .amendments import amending
from .amendments.amend import Amended
from .backend import PulseBackend, new_job, result_by_id
from .exceptions import InvalidJob
from .limits.keys import has_lane_key
from .managers import JobManager
from .models import Job
from .queue.database.querysets import JobQuerySet
from .queue.database.tables import explain_missing_tables
from .queue.words.decisions import Retry, decide
from .queue.words.display import shown
from .queue.words.durations import Seconds, as_timedelta
from .queue.words.job_ids import check_attempt
from .queue.words.job_options import QUEUE_NAME, TASK_NAME
from .queue.words.leases import Lease
from .queue.words.masks import PROGRESS
from .queue.words.outcomes import WorkerLost
from .queue.words.states import EndedBy, Status, run_ended
from .queue.words.verb_results import CancelRequested, Report, Retried, Settled
from .run.calls import checked
from .run.codec import codec
from .run.notify import ANY_QUEUE, is_due_soon, wake_workers
from .run.registry import Task, key_of
from .run.results import PulseTaskResult, job_id_of_public_id
from .shards.placement import alias_of_jobs, has_several_shards, locate, located_by_shard, shard_of_call
from .signals import send_when_committed

Arguments = Iterable[Any] | Mapping[str, Any]
Call = tuple[Sequence[Any], Mapping[str, Any]]


def get(job_id: int | str, *, using: str | None = None) -> Job:
    """Return a job, or raise ``Job.DoesNotExist``."""
    where = locate(job_id, using)
    job: Job = Job.objects.using(where.alias).get(pk=where.id)
    return job


def result_of_public_id(public_id: str) -> PulseTaskResult:
    """Return the result with this ``public_id``, or raise ``InvalidPublicId`` if it is forged.

    Raise ``TaskResultDoesNotExist`` for a job that was deleted, as ``get_result()`` does.
    """
    return result_by_id(job_id_of_public_id(public_id))


def jobs(
    *,
    status: Status | str | None = None,
    queue: str | None = None,
    task: Task | str | None = None,
    using: str | None = None,
) -> JobQuerySet[Job]:
    """Return a queryset of jobs, for reading. It takes no locks."""
    if status is not None and status not in tuple(Status):
        raise InvalidJob(f"status: {shown(status)} is not one of {', '.join(Status)}")
    if queue is not None:
        QUEUE_NAME.check("queue", queue)
    if isinstance(task, str):
        TASK_NAME.check("task", task)
    wanted = {"status": status, "queue": queue, "task": task if task is None or isinstance(task, str) else key_of(task)}
    found: JobQuerySet[Job] = Job.objects.using(alias_of_jobs(using))
    return found.filter(**{field: value for field, value in wanted.items() if value is not None})


def progress(job_id: int | str, *, using: str | None = None) -> Any:
    """Return the last value that the job's handler passed to ``context.progress()``, or None."""
    where = locate(job_id, using)
    found = Job.objects.using(where.alias).only("id", "task", "sensitive", "progress").get(pk=where.id)
    return codec().value_of(found, PROGRESS)


def cancel(*job_ids: int | str, reason: str = "", children: bool = False, using: str | None = None) -> CancelRequested:
    """Cancel waiting jobs and ask running ones to stop. With ``children``, include all jobs that they enqueued."""

    def cancel_in(alias: str, ids: frozenset[int]) -> CancelRequested:
        found = Job.objects.db_manager(alias)
        asked: CancelRequested = found.request_cancel(found.family(ids) if children else ids, reason=reason)
        return asked

    return reduce(or_, [cancel_in(*where) for where in located_by_shard(job_ids, using)])


def retry(
    *job_ids: int | str,
    runs: int = 1,
    delay: Seconds = 0,
    attempt: int | None = None,
    cancelled_too: bool = False,
    using: str | None = None,
) -> Retried:
    """Retry dead letters, with at least ``runs`` more attempts each.

    With ``attempt``, only jobs that died in that attempt are retried, so a call can be repeated if its answer was lost.
    Jobs of a cancelled batch are skipped unless ``cancelled_too`` is set.
    """
    how: dict[str, Any] = {
        "runs": runs,
        "delay": as_timedelta(delay),
        "attempt": attempt,
        "cancelled_too": cancelled_too,
    }
    return reduce(or_, [make_due.retry(*where, **how) for where in located_by_shard(job_ids, using)])


def amend(
    job_id: int | str,
    *,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    attempt: int | None = None,
    by: str = "",
    reason: str = "",
    using: str | None = None,
) -> Amended:
    """Change the arguments of a waiting job. The old arguments are kept, with ``by`` and ``reason``.

    ``args`` replaces all positional arguments, and ``kwargs`` all named ones. With ``attempt``, only a job with this
    number of attempts is changed. The answer says whether the amendment was refused, and why.
    """
    where = locate(job_id, using)
    return amending.amend(where.alias, where.id, args=args, kwargs=kwargs, attempt=attempt, by=by, reason=reason)


def release(
    *job_ids: int | str,
    reason: str = "taken back from its worker",
    attempt: int | None = None,
    using: str | None = None,
) -> Settled:
    """Take running jobs from their workers. They run again at once, or become dead letters after their last attempt.

    The attempt counts. Its handler may still be running, and finds that its lease is lost.

    With ``attempt``, only the run with that number is ended.
    """
    check_attempt(attempt)
    places = located_by_shard(job_ids, using)
    return reduce(or_, [_release_in(*where, reason=reason, attempt=attempt) for where in places])


def _release_in(alias: str, ids: frozenset[int], *, reason: str, attempt: int | None) -> Settled:
    held = Job.objects.using(alias).running().filter(pk__in=ids)
    if attempt is not None:
        held = held.filter(attempts=attempt)
    reports, taken = [], list(held)
    for job in taken:
        budget = replace(job.budget, retries_for=None)  # retried at once; the database checks the time
        decision = decide(outcome := WorkerLost(reason), budget, max_lost_workers=conf.current().max_lost_workers)
        if isinstance(decision, Retry):
            decision = replace(decision, delay=timedelta())
        reports.append(Report(Lease(job.pk, str(job.locked_by), job.attempts), outcome, decision))
    settled: Settled = Job.objects.db_manager(alias).settle(reports)
    if settled.accepted:
        wake_workers(alias, [ANY_QUEUE])
    for job, report in zip(taken, reports, strict=True):
        if (status := settled.accepted.get(report.lease)) is not None:
            ending = run_ended(
                job, report.lease, status=status, by=EndedBy.CALLER, outcome=report.outcome.name, reason=reason
            )
            send_when_committed(Job, ending, using=alias)
    return settled


def enqueue_many(
    task: Task,
    arguments: Iterable[Arguments],
    *,
    progress: Callable[[int], object] | None = None,
    using: str | None = None,
) -> list[int]:
    """Enqueue a task once for each item: a mapping of keyword arguments, or a sequence of positional ones.

    Either all jobs are enqueued or none, in the caller's transaction if there is one. ``progress`` is called with the
    number of jobs written so far. Returns the jobs' ids in order. Django's ``task_enqueued`` is not sent for each.

    Items whose keys place their jobs in different shards are refused. Group them by ``shard_of()``.

    A task of another backend is enqueued there, once for each item. The ids are those of that backend's results.
    """
    called_with: Iterable[Call] = (_checked(task, place, item) for place, item in enumerate(arguments))
    if not isinstance(backend := task.get_backend(), PulseBackend):
        results: list[Any] = [task.enqueue(*args, **kwargs).id for args, kwargs in list(called_with)]
        if progress is not None:
            progress(len(results))
        return results
    backend.validate_again(task)
    has_keys = getattr(task, "unique", None) is not None or has_lane_key(task)  # each job has its own key
    if has_keys and has_several_shards():
        called_with = list(called_with)
        alias = _shard_of_all(task, called_with, using)
    else:
        alias = shard_of_call(task, using=using)
    jobs: JobManager = Job.objects.db_manager(alias)
    try:
        if has_keys:
            ids = jobs.enqueue_many((new_job(task, *call, alias) for call in called_with), progress=progress)
        else:
            ids = jobs.enqueue_alike(new_job(task, (), {}, alias), called_with, progress=progress)
    except ProgrammingError as error:
        explain_missing_tables(error, alias)
        raise
    if ids and is_due_soon(task.run_after):
        wake_workers(alias, [task.queue_name])
    return ids


def shard_of(task: Task, /, *args: Any, **kwargs: Any) -> str:
    """Return the alias of the database in which a job of this task with these arguments is stored.

    Raise ``InvalidJob`` if it needs two different shards.
    """
    return shard_of_call(task, *checked(task, args, kwargs))


def _shard_of_all(task: Task, called_with: Sequence[Call], using: str | None) -> str:
    alias = None
    for place, call in enumerate(called_with):
        of_call = shard_of_call(task, *call, using)
        if alias not in (None, of_call):
            raise InvalidJob(
                f"arguments[{place}] belongs to shard {of_call!r}, and earlier ones to {alias!r}. Group them by "
                f"shard_of(), and call once for each shard"
            )
        alias = of_call
    return alias or alias_of_jobs(using)


def _checked(task: Task, place: int, item: Arguments) -> tuple[Sequence[Any], Mapping[str, Any]]:
    if isinstance(item, Mapping):
        return checked(task, (), item)
    if isinstance(item, str | bytes) or not isinstance(item, Iterable):
        kind = type(item).__name__
        raise InvalidJob(f"arguments[{place}]: {kind} is a single value; write [value] for a single argument")
    return checked(task, list(item), {})
