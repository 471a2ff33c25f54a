"""``PulseBackend``: a backend of Django's Tasks that stores jobs in PostgreSQL."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from django.core.checks import CheckMessage, Error
from django.db import ProgrammingError

from .exceptions import CannotDecrypt, DecryptionFailed, InvalidJob
from .models import Job
from .queue.database.sql_functions import aware
from .queue.database.tables import explain_missing_tables
from .queue.enqueue import Added, add
from .queue.job import JobRow
from .queue.words import traces
from .queue.words.job_options import NewJob, Place
from .queue.words.options import options_of
from .queue.words.own_tasks import ONLY_PULSE, OWN_TASKS
from .run.calls import Uses, checked, uses_of
from .run.django_log import is_heard
from .run.notify import is_due_soon, wake_workers
from .run.registry import (
    BaseTaskBackend,
    Task,
    TaskResult,
    key_of,
    registry,
    task_backends,
    task_enqueued,
)
from .run.registry import TaskResultDoesNotExist as TaskResultDoesNotExist
from .run.results import PulseTaskResult, as_enqueued, result_of, result_of_new
from .run.run import current_run
from .shards.placement import alias_of_jobs, alias_of_run, locate, shard_of_call
from .tasks import PulseTask


class PulseBackend(BaseTaskBackend):
    task_class = PulseTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Allow any queue, unless ``QUEUES`` lists the allowed ones. Django's default is ``["default"]``."""
        super().__init__(alias, {"QUEUES": [], **params})

    def validate_task(self, task: Task) -> None:
        """Refuse or register a task. Django calls this for every declared task."""
        self.validate_again(task)
        registry.add(task)

    def validate_again(self, task: Task) -> None:
        """Refuse a task that the setting TASKS does not allow any more. It may have changed since the task was made."""
        super().validate_task(task)
        if hasattr(task, "__dict__"):  # a task that another backend has made has slots
            object.__setattr__(task, "_valid_in", task_backends.settings)

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Add the job in the caller's transaction."""
        return self.enqueue_at(task, args, kwargs, None, None)

    def enqueue_at(
        self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], place: Place | None, using: str | None
    ) -> TaskResult:
        """Add the job in the caller's transaction, also as a part of a batch in that database."""
        if getattr(task, "_valid_in", None) is not task_backends.settings:
            self.validate_again(task)
        with traces.enqueueing(key_of(task), task.queue_name):
            args, kwargs = checked(task, args, kwargs)
            alias = shard_of_call(task, args, kwargs, using)
            new = new_job(task, args, kwargs, alias)
            new = new if place is None else replace(new, place=place)
            try:
                added = add(Job.objects.db_manager(alias), new)
            except ProgrammingError as error:
                explain_missing_tables(error, alias)
                raise
        # A waiting job with this key is locked until the commit, and workers skip it until then.
        holds_back = new.unique is not None and new.unique.rule.until_start
        is_new = isinstance(added, Added)
        if (is_new or holds_back) and is_due_soon(new.run_after):
            wake_workers(alias, [new.queue if isinstance(added, Added) else added.queue])
        if not isinstance(added, Added):  # the existing job was announced before
            return _result_of_other(added, task)
        result = result_of_new(added, task) if new.sensitive is None else result_of(added.job, task, is_new=True)
        if is_heard(task_enqueued, logging.DEBUG):
            task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> TaskResult:
        """Return the result of a job."""
        return result_by_id(result_id)

    def check(self, **kwargs: Any) -> Iterable[CheckMessage]:
        if self.options:
            yield Error(
                f"TASKS[{self.alias!r}] sets OPTIONS {sorted(self.options)}, but PulseBackend accepts no options.",
                hint="Configure Pulse in the PULSE setting.",
                id="pulse_django.E010",
            )


def uses_pulse() -> bool:
    """Return whether a backend of the setting TASKS is Pulse's."""
    return any(isinstance(task_backends[alias], PulseBackend) for alias in task_backends)


def result_by_id(job_id: int | str) -> PulseTaskResult:
    """Return the result of a job, or raise ``TaskResultDoesNotExist``."""
    try:
        where = locate(job_id)
    except InvalidJob as error:
        raise TaskResultDoesNotExist(job_id) from error
    job = Job.objects.using(where.alias).filter(pk=where.id).first()
    if job is None:
        raise TaskResultDoesNotExist(job_id)
    task = registry.get(job.task)
    if task is None:
        raise TaskResultDoesNotExist(f"{job_id} belongs to task {job.task!r}, which is not registered in this process")
    return result_of(job, as_enqueued(task, job))


def new_job(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any], alias: str | None = None) -> NewJob:
    """Turn a task and its checked arguments into a job. If a handler enqueues it, it is a child of the handler's job.

    In another database than that of the handler's job, it has no parent, because no statement reads both databases.
    """
    if (name := key_of(task)) in OWN_TASKS:
        raise InvalidJob(f"{name}: {ONLY_PULSE}")
    run, uses = current_run(), uses_of(task)
    is_beside = run is not None and alias_of_run(run) == (alias or alias_of_jobs())
    parent_id = run.parent_id if run is not None and is_beside else None
    if not uses.call_fields and type(task) is PulseTask:
        if (like := task.__dict__.get("_like")) is None or like[0] is not uses:
            like = uses, _new_job(task, name, uses).for_calls()
            object.__setattr__(task, "_like", like)
        return like[1].called(args, kwargs, parent_id, traces.current())
    return _new_job(task, name, uses, args=args, kwargs=kwargs, parent_id=parent_id, trace=traces.current())


def _new_job(task: Task, name: str, uses: Uses, **of_call: Any) -> NewJob:
    options, delay = options_of(task), getattr(task, "runs_in", None)
    for one in uses.call_fields:
        options |= one.fields(task, of_call["args"], of_call["kwargs"])
    return NewJob(
        task=name,
        queue=task.queue_name,
        priority=int(task.priority),
        run_after=aware(task.run_after) if delay is None else delay,
        names=uses.names,
        expires=aware(getattr(task, "expires", None)),
        tags=getattr(task, "tags", ()),
        meta=getattr(task, "meta", None),
        **of_call,
        **options,
    )


def _result_of_other(job: JobRow, task: Task) -> TaskResult:
    """Return the result of the existing job with the key of a call, without values that cannot be decrypted here.

    The enqueue succeeded, so an error must not abort the caller's transaction.
    """
    try:
        return result_of(job, as_enqueued(task, job), is_new=False)
    except (CannotDecrypt, DecryptionFailed):
        return result_of(job, as_enqueued(task, job), decrypt=False, is_new=False)
