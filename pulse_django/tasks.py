"""``@task``: Django's decorator with the options that a crash-safe queue adds, on every supported Django."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from inspect import Parameter, iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, overload

from .execution.registry import keys_of, registry
from .execution.tasks_framework import GenericTask, InvalidTask, Task, changed
from .words.job_options import NewJob
from .words.limits import DEFAULT_QUEUE, MAX_TASK_NAME
from .words.retry_policies import RetryPolicy

if TYPE_CHECKING:
    from .execution.context import Context
    from .execution.tasks_framework import GenericTaskResult

DEFAULT_BACKEND = "default"  # of TASKS

# What people who come from Celery write, and what to write instead.
_LATER = "with options .using(run_after=..., queue_name=..., priority=...).enqueue(...)"
_CELERYS = {
    "delay": _LATER,
    "apply_async": _LATER,
    "apply": "call .func(...) to run it immediately",
    "s": "enqueue the next task at the end of this one",
    "si": "enqueue the next task at the end of this one",
    "signature": "enqueue the next task at the end of this one",
    "subtask": "enqueue the next task at the end of this one",
}

P = ParamSpec("P")
T = TypeVar("T")


class Isolation(StrEnum):
    """Where a sync handler runs. Async ones always run on the worker's event loop."""

    THREAD = "thread"
    PROCESS = "process"  # one for each run: slower to start, and really killed on timeout and cancel


@dataclass(frozen=True, slots=True, kw_only=True)
class PulseTask(GenericTask, Generic[P, T]):  # type: ignore[type-arg]  # Django's own takes no parameters
    """A task with Pulse's options. What is None follows the fleet's default."""

    # Django's own fields: before Django 6.1 they have no defaults.
    priority: int = 0
    backend: str = DEFAULT_BACKEND
    queue_name: str = DEFAULT_QUEUE
    run_after: datetime | None = None
    name: str = ""  # a key of its own for its jobs, so that the function may move; default: the path of the function
    key: str = ""  # stands on the jobs: the name that was given, or else the path of the function
    aliases: tuple[str, ...] = ()  # keys of old: jobs that carry them still find their task
    max_attempts: int | None = None  # how many runs a job may have before it is dead-lettered
    retry: RetryPolicy | None = None  # which exceptions are retried, and at what pace
    timeout: timedelta | None = None  # the longest a single run may take
    lease: timedelta | None = None  # how long its worker may be silent before it is taken for dead; a day at most
    stall_after: timedelta | None = None  # the longest a run may go without reporting progress
    max_losses: int | None = None  # workers that a job may lose until it is dead-lettered, whatever attempts are left
    free_losses: bool = False  # whether a lost worker costs no attempt; ``max_losses`` still ends it
    isolation: str = Isolation.THREAD  # or "process": one for each run, really killed on timeout and cancel
    atomic: bool = False  # the handler and its completion are one transaction
    masked: tuple[str, ...] = ()  # parameters that nobody sees in the admin or in logs; ``"return"`` is the result
    runs_in: timedelta | None = None  # run_after as a duration: the server adds it to its own clock
    idempotency_key: str | None = None  # of two jobs of this task with the same key only the first is enqueued
    database: str | None = None  # alias of the database that takes the job; default: the handler's own, or the router's

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", self.key or self.name or self.module_path)
        object.__setattr__(self, "name", self.name or self.func.__name__)
        object.__setattr__(self, "aliases", tuple(self.aliases))
        if isinstance(self.masked, str):
            raise InvalidTask(f"masked: {self.masked!r} is a single name; write masked=({self.masked!r},).")
        object.__setattr__(self, "masked", tuple(self.masked))
        if unknown := self._unknown_masks():
            raise InvalidTask(f"masked: {self.func.__name__}() has no parameter {unknown[0]!r}.")
        self._check_options()
        GenericTask.__post_init__(self)

    def __reduce__(self) -> Any:
        """Go by name, with what differs from the declaration. A function behind a decorator has no name of its own."""
        declared = registry.get(self.key)
        changes = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name != "func" and (declared is None or getattr(self, one.name) != getattr(declared, one.name, None))
        }
        return _restored, (self.key, changes)

    def _unknown_masks(self) -> list[str]:
        """A name that was mistyped would mask nothing."""
        parameters = signature(self.func).parameters
        takes_any = any(one.kind is Parameter.VAR_KEYWORD for one in parameters.values())
        return [name for name in self.masked if name != "return" and name not in parameters and not takes_any]

    def using(
        self,
        *,
        priority: int | None = None,
        queue_name: str | None = None,
        run_after: datetime | timedelta | None = None,
        backend: str | None = None,
        max_attempts: int | None = None,
        timeout: timedelta | None = None,
        lease: timedelta | None = None,
        stall_after: timedelta | None = None,
        idempotency_key: str | None = None,
        database: str | None = None,
    ) -> PulseTask[P, T]:
        """Return the same task with other defaults for the jobs that it enqueues."""
        changes: dict[str, Any] = {
            "priority": priority,
            "queue_name": queue_name,
            "backend": backend,
            "max_attempts": max_attempts,
            "timeout": timeout,
            "lease": lease,
            "stall_after": stall_after,
            "idempotency_key": idempotency_key,
            "database": database,
        }
        changes = {option: value for option, value in changes.items() if value is not None}
        if isinstance(run_after, timedelta):
            changes |= {"runs_in": run_after, "run_after": None}
        elif run_after is not None:
            changes |= {"runs_in": None, "run_after": run_after}
        return replace(self, **changes)

    def _check_options(self) -> None:
        if self.isolation not in set(Isolation):
            raise InvalidTask(f"isolation: {self.isolation!r} is neither 'thread' nor 'process'.")
        if iscoroutinefunction(self.func) and (self.atomic or self.isolation == Isolation.PROCESS):
            raise InvalidTask(
                "Async handlers run on the event loop and support neither atomic=True nor isolation='process'."
            )
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise InvalidTask(f"retry: {self.retry!r} is not a RetryPolicy; write never(...), only(...) or NO_RETRIES.")
        if any(not isinstance(key, str) or len(key) > MAX_TASK_NAME for key in keys_of(self)):
            raise InvalidTask(
                f"name and aliases: {list(keys_of(self))!r} must all be names of at most {MAX_TASK_NAME} characters."
            )
        try:
            NewJob(
                task=self.key,
                max_attempts=self.max_attempts,
                timeout=self.timeout,
                lease_ttl=self.lease,
                stall_after=self.stall_after,
                max_losses=self.max_losses,
                free_losses=self.free_losses,
                run_after=self.runs_in,
                idempotency_key=self.idempotency_key,
            )
        except ValueError as error:
            raise InvalidTask(str(error)) from error

    if TYPE_CHECKING:  # without __getattr__, which would let every attribute pass

        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> GenericTaskResult[T]: ...

        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> GenericTaskResult[T]: ...

    else:

        def __getattr__(self, name: str) -> Any:
            if name not in _CELERYS:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            called = self.func.__name__
            raise AttributeError(f"{name}() is a Celery method. Use {called}.enqueue(...), or {_CELERYS[name]}.")


def _restored(key: str, changes: dict[str, Any]) -> Task:
    """Find the task in the registry, as for a row: what names it never causes an import."""
    if (declared := registry.get(key)) is None:
        raise LookupError(f"{key!r}: no task in this process has that name")
    return changed(declared, changes)


@overload
def task(function: Callable[P, T], /) -> PulseTask[P, T]: ...


@overload
def task(
    *,
    takes_context: Literal[True],
    name: str = ...,
    aliases: tuple[str, ...] = ...,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    max_attempts: int | None = ...,
    retry: RetryPolicy | None = ...,
    timeout: timedelta | None = ...,
    lease: timedelta | None = ...,
    stall_after: timedelta | None = ...,
    max_losses: int | None = ...,
    free_losses: bool = ...,
    isolation: str = ...,
    atomic: bool = ...,
    masked: tuple[str, ...] = ...,
) -> Callable[[Callable[Concatenate[Context, P], T]], PulseTask[P, T]]: ...


@overload
def task(
    *,
    takes_context: Literal[False] = ...,
    name: str = ...,
    aliases: tuple[str, ...] = ...,
    priority: int = ...,
    queue_name: str = ...,
    backend: str = ...,
    max_attempts: int | None = ...,
    retry: RetryPolicy | None = ...,
    timeout: timedelta | None = ...,
    lease: timedelta | None = ...,
    stall_after: timedelta | None = ...,
    max_losses: int | None = ...,
    free_losses: bool = ...,
    isolation: str = ...,
    atomic: bool = ...,
    masked: tuple[str, ...] = ...,
) -> Callable[[Callable[P, T]], PulseTask[P, T]]: ...


def task(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Make a function a task that ``.enqueue()`` runs in a worker."""
    for option in ("run_after", "idempotency_key", "database", "runs_in", "delay", "key"):
        if option in options:
            raise TypeError(f"{option} cannot be set in the decorator: use .using(...) when enqueueing.")

    def decorate(func: Callable[..., Any]) -> PulseTask[Any, Any]:
        made: PulseTask[Any, Any] = PulseTask(func=func, **options)
        registry.add(made)
        return made

    return decorate if function is None else decorate(function)
