"""A call of a task, to be enqueued as a part of a batch or a workflow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pulse_django.backend import PulseBackend, new_job
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.other_queues import OF_CALLS, no_call, no_pipe, says_instead
from pulse_django.run.calls import checked
from pulse_django.run.registry import Task, TaskResult
from pulse_django.shards.placement import shard_of_call

from .rules import Place


@dataclass(frozen=True, slots=True)
class Call:
    """A task and its arguments. ``task.prepare(...)`` makes one."""

    task: Task
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] = field(default_factory=dict, repr=False)

    if not TYPE_CHECKING:
        __getattr__, __or__, __call__ = says_instead(OF_CALLS), no_pipe, no_call(".enqueue()")

    def backend(self) -> PulseBackend:
        """Return the backend of the task, which must be Pulse's."""
        backend = self.task.get_backend()
        if not isinstance(backend, PulseBackend):
            raise InvalidWorkflow(
                f"{self.task.module_path} runs on {type(backend).__name__}. Batches and workflows need PulseBackend: "
                "run them with drain(), or use Django's DummyBackend to look at the jobs of a workflow"
            )
        return backend

    def enqueue(self) -> TaskResult:
        """Enqueue only this call."""
        result: TaskResult = self.task.enqueue(*self.args, **self.kwargs)
        return result

    def new_job(self, alias: str, place: Place | None = None) -> NewJob:
        """Return the new job of this call."""
        self.backend()
        args, kwargs = checked(self.task, self.args, self.kwargs)
        new = new_job(self.task, args, kwargs, shard_of_call(self.task, args, kwargs, alias))
        return new if place is None else replace(new, place=place)


def call_of(given: object) -> Call:
    """Accept a call, or a task that needs no arguments."""
    if isinstance(given, Call):
        return given
    if isinstance(given, Task):
        return Call(given)
    raise InvalidWorkflow(f"{given!r} is no call of a task. Write my_task.prepare(...)")


def calls_of(given: object) -> list[Call]:
    """Accept one call, several, or none."""
    if given is None:
        return []
    return [call_of(one) for one in given] if isinstance(given, list | tuple) else [call_of(given)]
