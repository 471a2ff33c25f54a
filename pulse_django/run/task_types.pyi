"""The types of Django's Tasks, for type checkers: Django's classes have none, and few projects have the backport."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Generic, Protocol, Self, runtime_checkable

from django.db.models import TextChoices
from typing_extensions import TypeVar

T = TypeVar("T", default=Any)

@runtime_checkable
class Task(Protocol):
    """A task of Pulse, of Django or of the backport."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def func(self) -> Callable[..., Any]: ...
    @property
    def priority(self) -> int: ...
    @property
    def backend(self) -> str: ...
    @property
    def queue_name(self) -> str: ...
    @property
    def run_after(self) -> datetime | None: ...
    @property
    def takes_context(self) -> bool: ...
    @property
    def name(self) -> str: ...
    @property
    def module_path(self) -> str: ...
    def get_backend(self) -> Any: ...
    def enqueue(self, *args: Any, **kwargs: Any) -> Any: ...
    def call(self, *args: Any, **kwargs: Any) -> Any: ...
    @property
    def using(self) -> Callable[..., Any]: ...

@dataclass(frozen=True, kw_only=True)
class GenericTask:
    """The base of ``PulseTask``, without what that declares itself."""

    func: Callable[..., Any]
    takes_context: bool = False

    def __post_init__(self) -> None: ...
    @property
    def module_path(self) -> str: ...
    def get_backend(self) -> Any: ...
    def call(self, *args: Any, **kwargs: Any) -> Any: ...
    async def acall(self, *args: Any, **kwargs: Any) -> Any: ...

@dataclass(frozen=True, kw_only=True)
class Result(Generic[T]):
    """A result, with what Pulse adds."""

    task: Task
    id: str
    status: TextChoices  # Django and the backport have different subclasses
    enqueued_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    last_attempted_at: datetime | None
    args: list[Any]
    kwargs: dict[str, Any]
    backend: str
    errors: list[Any]
    worker_ids: list[str]
    is_new: bool | None = None

    @property
    def return_value(self) -> T | None: ...
    @property
    def is_finished(self) -> bool: ...
    @property
    def attempts(self) -> int: ...
    @property
    def public_id(self) -> str: ...
    def refresh(self) -> None: ...
    async def arefresh(self) -> None: ...
    def wait(self, timeout: float | timedelta) -> Self: ...
    async def await_(self, timeout: float | timedelta) -> Self: ...

@dataclass(frozen=True, kw_only=True)
class TaskContext:
    task_result: Result

class BaseTaskBackend:
    alias: str
    queues: set[str]
    options: dict[str, Any]
    task_class: type

    def __init__(self, alias: str, params: dict[str, Any]) -> None: ...
    def validate_task(self, task: Task) -> None: ...
    def enqueue(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Result: ...
    def get_result(self, result_id: str) -> Result: ...
