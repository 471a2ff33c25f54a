"""``ImmediateBackend``: Django's backend that runs each job at once in the caller's process, for Pulse's tasks."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.queue.words.payloads import encode_arguments
from pulse_django.run.calls import checked
from pulse_django.run.registry import BaseTaskBackend, Task, TaskContext, TaskResult, changed
from pulse_django.tasks import PulseTask
from pulse_django.testing.fake_context import FakeContext, fake_context

if TYPE_CHECKING:
    DjangosBackend = BaseTaskBackend
elif BaseTaskBackend.__module__.startswith("django_tasks"):
    from django_tasks.backends.immediate import ImmediateBackend as DjangosBackend
else:
    from django.tasks.backends.immediate import ImmediateBackend as DjangosBackend


class ImmediateBackend(DjangosBackend):
    """A backend for development and tests without PostgreSQL. It has any queue, and the context of a worker.

    Arguments are checked as for a job. Features of workers are missing: retries, timeouts, limits, middleware.
    """

    task_class = PulseTask

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, {"QUEUES": [], **params})

    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        checked(task, args, kwargs)
        limit = conf.current().max_payload_bytes
        args = json.loads(encode_arguments(list(args), limit=limit, what="args"))
        kwargs = json.loads(encode_arguments(dict(kwargs), limit=limit, what="kwargs"))
        return super().enqueue(_with_our_context(task) if task.takes_context else task, args, kwargs)


def _with_our_context(task: Task) -> Task:
    """Return a copy of the task whose handler is called with Pulse's context instead of Django's."""

    def call(context: TaskContext, *args: Any, **kwargs: Any) -> Any:
        return task.call(_context_of(context.task_result), *args, **kwargs)

    copy = changed(task, {})
    object.__setattr__(copy, "call", call)
    return copy


def _context_of(result: TaskResult) -> FakeContext:
    context, task = fake_context(max_attempts=1, results={}), result.task
    claim = context.run.claim
    # A random job id, because handlers may store data under the id of their job.
    lease = claim.lease._replace(job_id=secrets.randbits(62))
    context.run.claim = claim._replace(lease=lease, meta_json=getattr(task, "meta", None))
    return replace(context, task_result=result)
