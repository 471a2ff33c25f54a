"""``context.step()`` and ``context.sleep()``: work that a job does once, even if it runs several times."""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar, cast

from asgiref.sync import sync_to_async

from pulse_django import conf
from pulse_django.exceptions import InvalidJob, LeaseLost, Snooze
from pulse_django.models import Job
from pulse_django.queue.database.transactions import durable, refuse_callers_transaction
from pulse_django.queue.words.durations import WANTED, Seconds, as_timedelta
from pulse_django.queue.words.options import Text
from pulse_django.queue.words.payloads import encode_result
from pulse_django.run.codec import codec
from pulse_django.run.run import Run, StepNames
from pulse_django.shards.placement import alias_of_completion, alias_of_run

from .rules import MAX_NODE_NAME
from .steps import begin_sleep, steps_of, store_step

T = TypeVar("T")
STEP_NAME = Text(MAX_NODE_NAME)


class DurableSteps:
    """The part of ``Context`` with durable steps."""

    __slots__ = ()

    run: Run

    def step(self, name: str, function: Callable[..., T], *args: Any, atomic: bool = False, **kwargs: Any) -> T:
        """Call a function, unless it has returned in an earlier run of this job. Return its result.

        The result is stored under the lease of this run, as JSON, like the results of jobs. With ``atomic=True`` the
        writes of the function and the step are one transaction, so they happen exactly once in this database.
        """
        alias = alias_of_completion(self.run, None) if atomic else alias_of_run(self.run)
        return self._step(name, alias, atomic, partial(function, *args, **kwargs))

    def step_with_jobs(self, name: str, function: Callable[..., T], *args: Any) -> T:
        """Do an atomic step that writes only to the database of the jobs."""
        return self._step(name, alias_of_run(self.run), True, partial(function, *args))

    def _step(self, name: str, alias: str, atomic: bool, function: partial[T]) -> T:
        steps = self._begin_step(name)
        if name in steps.done:
            return cast(T, self._returned(name, steps.done[name]))
        if atomic:
            refuse_callers_transaction(alias, f"step {name!r} with atomic=True")
        begun = time.monotonic()
        with durable(alias) if atomic else nullcontext():
            value = function()
            if inspect.isawaitable(value):
                raise TypeError(f"step {name!r}: {function.func!r} is async; use `await context.astep(...)`")
            encoded = self._encoded(name, value)
            self._store(alias, name, encoded, time.monotonic() - begun)
        return cast(T, self._done(steps, name, encoded))

    async def astep(self, name: str, function: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
        """``step()`` for async functions. There is no ``atomic``: Django's transactions are not async."""
        steps = await sync_to_async(self._begin_step)(name)
        if name in steps.done:
            return cast(T, self._returned(name, steps.done[name]))
        begun = time.monotonic()
        encoded = self._encoded(name, await function(*args, **kwargs))
        await sync_to_async(self._store)(alias_of_run(self.run), name, encoded, time.monotonic() - begun)
        return cast(T, self._done(steps, name, encoded))

    def sleep(self, delay: Seconds, *, name: str = "sleep") -> None:
        """Continue after ``delay``. The run ends, and another one starts at that time; the attempt does not count.

        The sleep is a step: the next run skips it if its time is over.
        """
        if not isinstance(duration := as_timedelta(delay), timedelta):
            raise TypeError(f"sleep() requires {WANTED}, not {delay!r}")
        self._begin_step(name)
        run = self.run
        refuse_callers_transaction(alias_of_run(run), f"sleep {name!r}")
        left = begin_sleep(Job.objects.db_manager(alias_of_run(run)), run.claim.lease, name, duration.total_seconds())
        if left is None:
            self._lose()
        elif left > 0:
            raise Snooze(timedelta(seconds=left))

    async def asleep(self, delay: Seconds, *, name: str = "sleep") -> None:
        """``sleep()`` for async handlers."""
        await sync_to_async(self.sleep)(delay, name=name)

    def _begin_step(self, name: str) -> StepNames:
        self.run.check()
        if self.run.completed:
            raise RuntimeError(f"step {name!r}: this run has already completed its job")
        if self.run.steps is None:
            found = steps_of(alias_of_run(self.run), self.run.claim.job_id)
            self.run.steps = StepNames({name: result for name, result, *_ in found})
        STEP_NAME.check("step", name)
        if name in self.run.steps.used:
            raise InvalidJob(f"step: this run has had a step {name!r}; give each step a name of its own")
        self.run.steps.used.add(name)
        return self.run.steps

    def _encoded(self, name: str, value: Any) -> str | None:
        text = encode_result(value, limit=conf.current().max_payload_bytes)
        return None if text is None else codec().stored(self.run.claim, text, _field(name))

    def _returned(self, name: str, encoded: str | None) -> Any:
        if encoded is None:
            return None
        return codec().read(self.run.claim, json.loads(encoded), _field(name))

    def _store(self, alias: str, name: str, encoded: str | None, seconds: float) -> None:
        if not store_step(Job.objects.db_manager(alias), self.run.claim.lease, name, encoded, seconds):
            self._lose()

    def _done(self, steps: StepNames, name: str, encoded: str | None) -> Any:
        steps.done[name] = encoded
        if self.run.after_step is not None:
            self.run.after_step(name)
        return self._returned(name, encoded)

    def _lose(self) -> None:
        self.run.lost = True
        raise LeaseLost("this run lost its lease to another run; the step was not stored")


def _field(name: str) -> str:
    return f"step:{name}"
