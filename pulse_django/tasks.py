"""``@task``: Django's decorator with Pulse's options, for every supported Django."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from datetime import datetime, timedelta
from inspect import iscoroutinefunction
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    Unpack,
    overload,
)

from django.conf import global_settings, settings

from .chunks.chunk import acall_alone, call_alone, check_chunk
from .exceptions import InvalidJob
from .on_dead.rule import why_no_hook
from .queue.words.bounds import DEFAULT_QUEUE, MAX_TASK_NAME
from .queue.words.decisions import ANY_EXCEPTION
from .queue.words.durations import WANTED, Seconds, as_timedelta
from .queue.words.job_options import TASK_NAME, check_expires, check_run_after, encode_meta, tags_of
from .queue.words.masks import why_not_searched
from .queue.words.options import (
    DEFAULT_BACKEND,
    DURATIONS,
    OF_CALL,
    OF_TASK,
    CallOptions,
    Options,
    TaskOptions,
    check_task,
    refuse_strangers,
)
from .queue.words.options import Isolation as Isolation
from .queue.words.other_queues import OF_TASKS, no_pipe, says_instead
from .run.registry import GenericTask, InvalidTask, Task, calls_plainly, changed, keys_of, registry
from .run.routes import route_of
from .run.signatures import signature_of

if TYPE_CHECKING:
    from .chunks.chunk import Chunk
    from .run.context import Context
    from .run.task_types import Result
    from .workflows.calls import Call

_OF_CALLS = OF_CALL - OF_TASK
_OF_DECLARATIONS = OF_TASK - OF_CALL
_OF_DECORATOR = OF_TASK | {"takes_context"}

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class PulseTask(GenericTask, Options, Generic[P, T]):
    """A task with Pulse's options. None means the default of the settings."""

    # Django's own fields, which have no defaults before Django 6.1.
    priority: int = 0
    backend: str = DEFAULT_BACKEND
    queue_name: str = DEFAULT_QUEUE
    run_after: datetime | None = None
    name: str = ""
    registered_name: str = ""  # the key of its jobs: the given name, or the path of the function
    runs_in: timedelta | None = None  # run_after as a duration, which is added to the server's clock

    def __post_init__(self) -> None:
        # A copy made by using() has the name and the route of the task.
        route = {} if self.registered_name else route_of(self.name or self.module_path)
        before = _hidden(self) if route else {}
        for option, value in route.items():
            object.__setattr__(self, option, value)
        try:
            self._complete()
        except InvalidTask as error:
            if route:
                error.add_note(f'PULSE["ROUTES"] gives {self.registered_name!r} these options: {dict(route)!r}')
            raise
        shown = [option for option, names in before.items() if names - _hidden(self)[option]]
        if shown:
            object.__setattr__(self, "_shown_by_route", shown)  # for a system check

    def _complete(self) -> None:
        object.__setattr__(self, "registered_name", self.registered_name or self.name or self.module_path)
        object.__setattr__(self, "name", self.name or self.func.__name__)
        for option in DURATIONS:
            object.__setattr__(self, option, as_timedelta(getattr(self, option)))
        for option in ("aliases", "sensitive", "searchable"):
            object.__setattr__(self, option, _names(option, getattr(self, option)))
        if self.tags:
            object.__setattr__(self, "tags", _checked(self.registered_name, tags_of, self.tags))
        for option in ("limit_key", "fair_by"):  # names of arguments, or a function
            if (given := getattr(self, option)) is not None and not callable(given):
                object.__setattr__(self, option, _names(option, given))
        if self.at_most_once:
            self._set_budget_of_one_run()
        elif self.max_lost_workers == 0:
            raise InvalidTask("max_lost_workers: 0 is not allowed. Use at_most_once=True, or at least 1.")
        if self.retry is None:  # a policy, so that Celery's task.retry() is refused with the line to write
            object.__setattr__(self, "retry", ANY_EXCEPTION)
        self._check_names()
        self._check_options()
        try:
            GenericTask.__post_init__(self)
        except InvalidTask as error:
            if not (advice := self._advice(f"{error}")):
                raise
            raise InvalidTask(f"{error} {advice}") from None

    def __repr__(self) -> str:
        name = self.registered_name if len(self.registered_name) <= 54 else f"...{self.registered_name[-51:]}"
        queue = self.queue_name if len(self.queue_name) <= 20 else f"{self.queue_name[:17]}..."
        return f"<task {name!r} in the queue {queue!r}>"

    def __reduce__(self) -> Any:
        """Pickle the name, and the differences from the declaration. A decorated function cannot be pickled by name."""
        declared = registry.get(self.registered_name)
        changes = {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name != "func" and (declared is None or getattr(self, one.name) != getattr(declared, one.name, None))
        }
        return _restored, (self.registered_name, changes)

    def _set_budget_of_one_run(self) -> None:
        if self.chunk:
            raise InvalidTask("at_most_once cannot be combined with chunk, whose jobs wait for each other. Omit chunk.")
        budget = {"max_attempts": 1, "max_lost_workers": 0, "count_lost_workers": True, "retry": ANY_EXCEPTION}
        for option, only in budget.items():
            if getattr(self, option) not in (None, only):
                raise InvalidTask(f"at_most_once: {option} would allow a second run. Omit it.")
            object.__setattr__(self, option, only)

    def _check_names(self) -> None:
        """Refuse names that are not parameters: a mistyped name would mask nothing."""
        if (known := signature_of(self)) is None or known.any_name:
            return
        by = getattr(self.unique, "by", ())
        named = {
            "sensitive": self.sensitive,
            "searchable": self.searchable,
            "unique": by,
            "limit_key": self.limit_key,
            "fair_by": self.fair_by,
        }
        for option, names in named.items():
            for name in names if isinstance(names, tuple) else ():
                if name != "return" and name not in known.inner.parameters:
                    raise InvalidTask(f"{option}: {self.func.__name__}() has no parameter {name!r}.")

    def using(self, **options: Unpack[CallOptions]) -> Self:
        """Return a copy of the task with other options for the jobs that it enqueues."""
        for option in options.keys() & _OF_DECLARATIONS:
            raise TypeError(f"{option} cannot be set for a call: use @task({option}=...).")
        refuse_strangers(options, OF_CALL, ".using()")
        changes: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        run_after = changes.pop("run_after", None)
        run_after = as_timedelta(run_after)
        if isinstance(run_after, timedelta):
            changes |= {"runs_in": run_after, "run_after": None}
        elif isinstance(run_after, datetime):
            changes |= {"runs_in": None, "run_after": run_after}
        elif run_after is not None:
            raise TypeError(f"run_after: {run_after!r} is neither a datetime nor {WANTED}.")
        if not isinstance(expires := as_timedelta(changes.get("expires")), datetime | timedelta | None):
            raise TypeError(f"expires: {expires!r} is neither a datetime nor {WANTED}.")
        if "tags" in changes:
            changes["tags"] = (*self.tags, *_checked(self.registered_name, tags_of, changes["tags"]))
        if "meta" in changes:
            changes["meta"] = _checked(self.registered_name, encode_meta, changes["meta"])
        return replace(self, **changes)

    def prepare(self, *args: P.args, **kwargs: P.kwargs) -> Call:
        """Return this call as an object, to enqueue it as a part of a batch or a workflow."""
        from .workflows.calls import Call

        return Call(self, args, kwargs)

    @calls_plainly
    def call(self, *args: P.args, **kwargs: P.kwargs) -> T:
        """Call the handler directly. With chunks, it gets a chunk of one job."""
        return call_alone(self, args, kwargs) if self.chunk else GenericTask.call(self, *args, **kwargs)  # type: ignore[no-any-return]

    async def acall(self, *args: P.args, **kwargs: P.kwargs) -> T:
        called = acall_alone(self, args, kwargs) if self.chunk else GenericTask.acall(self, *args, **kwargs)
        return await called  # type: ignore[no-any-return]

    def _advice(self, error: str) -> str:
        """Return how to set the setting TASKS, or how to allow other queues than the default one."""
        if (tasks := getattr(settings, "TASKS", None)) is None or tasks is getattr(global_settings, "TASKS", None):
            return 'There is no setting TASKS: TASKS = {"default": {"BACKEND": "pulse_django.backend.PulseBackend"}}.'
        if self.queue_name == DEFAULT_QUEUE or f"{self.queue_name}" not in error:
            return ""
        return f'Add it to QUEUES in TASKS["{self.backend}"], or set "QUEUES": [] to allow all.'

    def _check_options(self) -> None:
        if self.runs_in is not None and not self.get_backend().supports_defer:
            raise InvalidTask(f"Backend does not support run_after. {self._advice('')}".strip())
        if iscoroutinefunction(self.func) and (self.atomic or self.isolation == Isolation.PROCESS):
            raise InvalidTask(
                "Async handlers run on the event loop and support neither atomic=True nor isolation='process'."
            )
        if any(not isinstance(key, str) or len(key) > MAX_TASK_NAME for key in keys_of(self)):
            raise InvalidTask(
                f"name and aliases: {list(keys_of(self))!r} must all be names of at most {MAX_TASK_NAME} characters."
            )
        if self.unique is not None and self.idempotency_key is not None:
            raise InvalidTask("unique and idempotency_key cannot be combined; use one of them.")
        if self.limit_key is not None and self.fair_by is not None:
            raise InvalidTask("limit_key and fair_by cannot be combined: slots are shared among the keys of a limit.")
        if self.limit_key is not None and self.limit is None:
            raise InvalidTask("limit_key requires a limit. To share slots without a limit, use fair_by.")
        if getattr(self.limit, "needs_key", False) and self.limit_key is None and self.fair_by is None:
            raise InvalidTask("limit: max_running_per_key and rate_per_key need limit_key or fair_by.")
        if (most := getattr(self.limit, "heaviest", None)) is not None and self.weight > most:
            raise InvalidTask(f"weight: {self.weight} is more than the limit allows at once, which is {most}.")
        check_chunk(self, self)
        if self.on_dead is not None and (no_hook := why_no_hook(self.on_dead)):
            raise InvalidTask(f"on_dead: {no_hook}.")
        if (why := why_not_searched(self.searchable, self.sensitive)) is not None:
            raise InvalidTask(f"searchable: {why}")
        if type(self.priority) is not int:  # Django's own check refuses numbers out of range with the same message
            raise InvalidTask("priority must be a whole number between -100 and 100.")
        try:
            TASK_NAME.check("task", self.registered_name)
            check_task(self)
            check_run_after(self.runs_in)
            if isinstance(self.expires, timedelta):
                check_expires(self.expires, self.runs_in)
        except InvalidJob as error:
            raise InvalidTask(f"{self.registered_name}: {error}") from error

    if TYPE_CHECKING:  # hide __getattr__, which would allow every attribute

        def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]: ...

        async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Result[T]: ...

        def get_result(self, result_id: str) -> Result[T]: ...

        async def aget_result(self, result_id: str) -> Result[T]: ...

    else:

        def __call__(self, *_: Any, **__: Any) -> Any:
            name = self.func.__name__
            raise TypeError(
                f"{name} is a task. Use {name}.enqueue(...), or {name}.call(...) to call the function here."
            )

        __getattr__, __or__ = says_instead(OF_TASKS), no_pipe


def _patch(task: PulseTask[..., Any], name: str, *value: Any) -> None:
    """Set or delete an attribute that is not a field, as ``mock.patch`` does with methods."""
    if name in PulseTask.__dataclass_fields__:
        raise FrozenInstanceError(f"{name} is read-only. Use task.using({name}=...).")
    (object.__setattr__ if value else object.__delattr__)(task, name, *value)


PulseTask.__setattr__ = PulseTask.__delattr__ = _patch  # type: ignore[assignment, method-assign]


def _checked(key: str, check: Callable[[Any], T], given: Any) -> T:
    try:
        return check(given)
    except InvalidJob as error:
        raise InvalidTask(f"{key}: {error}") from error


def _names(option: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str):
        return (given,)
    if not isinstance(given, list | tuple | set | frozenset) or not all(isinstance(name, str) for name in given):
        raise InvalidTask(f"{option}: {given!r} is not a list of names.")
    return tuple(given)


def _hidden(task: PulseTask[..., Any]) -> dict[str, set[str]]:
    everything = {"everything"} if task.encrypted else set()
    return {"encrypted": everything, "sensitive": set(_names("sensitive", task.sensitive))}


def _restored(key: str, changes: dict[str, Any]) -> Task:
    """Find a pickled task in the registry. Its name never causes an import."""
    if (declared := registry.get(key)) is None:
        raise LookupError(f"{key!r}: no task in this process has that name")
    return changed(declared, changes)


# The types of the decorator. The function of a task may be async: its result has the type that it returns when awaited.

if TYPE_CHECKING:

    class TaskWithContext(PulseTask[P, T]):
        def call(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> T: ...  # type: ignore[override]

        async def acall(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> T: ...  # type: ignore[override]

    class TaskWithChunks(PulseTask[..., Any]):
        def enqueue(self, **kwargs: Any) -> Result[Any]: ...

        async def aenqueue(self, **kwargs: Any) -> Result[Any]: ...

        def prepare(self, **kwargs: Any) -> Call: ...

        def call(self, **kwargs: Any) -> Any: ...

        async def acall(self, **kwargs: Any) -> Any: ...

    class Decorator(Protocol):
        @overload
        def __call__(self, function: Callable[P, Coroutine[Any, Any, T]], /) -> PulseTask[P, T]: ...
        @overload
        def __call__(self, function: Callable[P, T], /) -> PulseTask[P, T]: ...

    class DecoratorWithContext(Protocol):
        @overload
        def __call__(
            self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, T]], /
        ) -> TaskWithContext[P, T]: ...
        @overload
        def __call__(self, function: Callable[Concatenate[Context, P], T], /) -> TaskWithContext[P, T]: ...


@overload
def task(function: Callable[P, Coroutine[Any, Any, T]], /) -> PulseTask[P, T]: ...


@overload
def task(function: Callable[P, T], /) -> PulseTask[P, T]: ...


@overload
def task(*, takes_context: Literal[True], **options: Unpack[TaskOptions]) -> DecoratorWithContext: ...


@overload
def task(
    *, chunk: int, chunk_wait: Seconds | None = ..., **options: Unpack[TaskOptions]
) -> Callable[[Callable[[Chunk], Any]], TaskWithChunks]: ...


@overload
def task(*, takes_context: Literal[False] = ..., **options: Unpack[TaskOptions]) -> Decorator: ...


def task(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Turn a function into a task that ``.enqueue()`` runs in a worker."""
    for option in options.keys() & _OF_CALLS:
        raise TypeError(f"{option} cannot be set in the decorator: use .using(...) when enqueueing.")
    refuse_strangers(options, _OF_DECORATOR, "@task")
    said = {name: value for name, value in options.items() if value is not None}
    if not isinstance(as_timedelta(said.get("expires")), timedelta | None):
        raise TypeError(f"expires: @task takes {WANTED}, such as expires=60; .using() takes an instant, too.")

    def decorate(func: Callable[..., Any]) -> PulseTask[Any, Any]:
        made: PulseTask[Any, Any] = PulseTask(func=func, **said)
        registry.add(made)
        return made

    if function is not None and not callable(function):
        raise TypeError(f"@task takes a function or keyword options, not {function!r}. For a name: @task(name=...).")
    return decorate if function is None else decorate(function)
