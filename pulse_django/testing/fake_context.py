"""A context for unit tests of handlers: it records the calls of a handler, and uses no database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from pulse_django import conf
from pulse_django.exceptions import InvalidWorkflow, NeededResultMissing, WaitFor
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.job_options import encode_meta
from pulse_django.queue.words.leases import Claim, Lease
from pulse_django.queue.words.payloads import encode_progress, encode_result
from pulse_django.queue.words.states import Status
from pulse_django.run.context import Completion, Context
from pulse_django.run.run import Run, StepNames
from pulse_django.workflows.rules import Met
from pulse_django.workflows.waits import NeededResults

T = TypeVar("T")
_MET: Mapping[str, Met] = {Status.DEAD_LETTERED: Met.DEAD, Status.CANCELLED: Met.CANCELLED}
_LEASE = 86_400.0  # seconds; longer than a test stops at a breakpoint


class Recorded:
    """The calls of a handler, in order."""

    progress: list[Any]  # The arguments of each ``progress()``.
    steps: dict[str, Any]  # The results of the steps that were called, by name.
    sleeps: list[timedelta]  # The duration of each ``sleep()``.
    events: list[str]  # The names that ``wait_for_event()`` was called with.
    result: Any  # Of ``with context.atomic() as completion``.

    def __init__(self) -> None:
        self.progress, self.steps, self.sleeps, self.events, self.result = [], {}, [], [], None


@dataclass(frozen=True, slots=True)
class FakeResults(NeededResults):
    """The ``results`` of a fake context."""

    given: Mapping[str, object] = field(repr=False)

    def __getitem__(self, name: str) -> Any:
        return _or_raise(self.given[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.given)

    @property
    def not_done(self) -> dict[str, str]:
        missing = {name: one.status for name, one in self.given.items() if isinstance(one, NeededResultMissing)}
        return {name: str(_MET[status]) for name, status in missing.items() if status in _MET}


def _or_raise(value: Any) -> Any:
    if isinstance(value, BaseException):
        raise value
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeContext(Context):
    """The result of ``fake_context()``."""

    recorded: Recorded
    given_events: Mapping[str, object]
    given_results: Mapping[str, object] | None = field(repr=False)

    @property
    def results(self) -> FakeResults:
        if self.given_results is None:
            raise InvalidWorkflow("No results were given. Pass fake_context(results={...}), with the results by name")
        return FakeResults(self.job_id, "", self.given_results)

    def _batch(self, kind: str | None) -> None:
        """Belong to no batch, as a job that is enqueued alone."""

    @property
    def is_last_attempt(self) -> bool:
        return self.run.is_last_attempt(None)

    def progress(self, done: float, total: float | None = None, *, flush: bool = False, **payload: Any) -> None:
        Context.progress(self, done, total, **payload)
        self.recorded.progress.append(json.loads(self.run.last_progress() or "null"))

    def step(self, name: str, function: Callable[..., T], *args: Any, atomic: bool = False, **kwargs: Any) -> T:
        return self._step(name, "", False, partial(function, *args, **kwargs))

    def _store(self, alias: str, name: str, encoded: str | None, seconds: float) -> None:
        self.recorded.steps[name] = self._returned(name, encoded)

    def sleep(self, delay: Seconds, *, name: str = "sleep") -> None:
        self._begin_step(name)
        self.recorded.sleeps.append(as_timedelta(delay))

    def wait_for_event(self, name: str, *, timeout: Seconds | None = None) -> Any:
        self.run.check()
        self.recorded.events.append(name)
        if name not in self.given_events:
            raise WaitFor(f"event {name!r}")
        return _or_raise(self.given_events[name])

    @contextmanager
    def atomic(self, *, using: str | None = None) -> Iterator[Completion]:
        completion = Completion()
        yield completion
        self.recorded.result = completion.result
        self._note_completion()


def fake_context(
    *,
    attempt: int = 1,
    max_attempts: int | None = None,
    checkpoint: Any = None,
    steps: Mapping[str, Any] | None = None,
    events: Mapping[str, Any] | None = None,
    results: Mapping[str, Any] | None = None,
    meta: Mapping[str, Any] | None = None,
    cancelled: bool = False,
) -> FakeContext:
    """Return a context for ``task.call(context, ...)``, which calls the handler without a job or a database.

    ``checkpoint`` is the progress that an earlier run saved, ``steps`` the results of steps of earlier runs, by name,
    ``events`` the payloads of events that have been sent, and ``results`` the results of the needed jobs, by name. An
    exception in place of a payload or a result is raised.
    ``context.recorded`` has the calls of the handler: ``progress``, ``steps``, ``sleeps``, ``events``, and the
    ``result`` of ``atomic()``.

    Steps are called and not stored, ``sleep()`` returns at once, and ``atomic()`` opens no transaction. For an event
    that has not been sent, the exception that ends a run is raised. ``task_result``, ``batch`` and ``workflow`` are
    None. Use ``run_job()`` for ``wait_for()`` and other calls that need other jobs.
    """
    limit = conf.current().max_payload_bytes
    claim = Claim(
        lease=Lease(1, "pulse-test", attempt),
        token=attempt,
        task="",
        queue="default",
        priority=0,
        args_json="[]",
        kwargs_json="{}",
        progress_json=None if checkpoint is None else encode_progress(checkpoint, limit=limit),
        refunds=0,
        max_attempts=max_attempts or conf.current().max_attempts,
        losses=0,
        ttl_seconds=_LEASE,
        parent_id=None,
        created_epoch=0.0,
        started_epoch=0.0,
        due_epoch=0.0,
        meta_json=None if meta is None else encode_meta(meta),
    )
    done = {name: encode_result(result, limit=limit) for name, result in (steps or {}).items()}
    if results is not None:
        results = {
            name: one if isinstance(one, BaseException) else json.loads(encode_result(one, limit=limit) or "null")
            for name, one in results.items()
        }
    run = Run(claim, alias="", steps=StepNames(done), cancelled=cancelled)
    no_result: Any = None
    return FakeContext(
        task_result=no_result, run=run, recorded=Recorded(), given_events=events or {}, given_results=results
    )
