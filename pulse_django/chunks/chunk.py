"""The argument of a handler with chunks: several jobs of its task, each of which gets its own result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import iscoroutinefunction, signature
from typing import TYPE_CHECKING, Any

from asgiref.sync import async_to_sync, sync_to_async

from pulse_django.queue.words.options import Isolation
from pulse_django.run.calls import checked
from pulse_django.run.registry import InvalidTask, Task
from pulse_django.run.run import Run

if TYPE_CHECKING:
    from pulse_django.queue.words.options import Options
    from pulse_django.run.context import Context


_NO_JOB = "this handler was called without a job: there is no context"


class ChunkItem:
    """One job of a chunk. Call ``succeed`` or ``fail``, or leave the decision to the end of the handler.

    A job without a decision succeeds if the handler returns, and fails if it raises.
    """

    __slots__ = ("_decided", "_make_context", "_run", "error", "is_decided", "known_context", "kwargs", "result")

    def __init__(
        self,
        kwargs: dict[str, Any],
        run: Run | None = None,
        make_context: Callable[[], Context] | None = None,
        decided: Callable[[ChunkItem], object] = lambda _: None,
        context: Context | None = None,
    ) -> None:
        """``run`` is None if a handler is called without a job. ``decided`` is called with the decision."""
        self.kwargs = kwargs
        self.is_decided = False
        self.result: Any = None  # if it has succeeded
        self.error: BaseException | None = None  # if it has failed
        self._run, self._make_context, self._decided = run, make_context, decided
        self.known_context = context  # None: not made yet

    def __repr__(self) -> str:
        return f"<ChunkItem job {self._run.claim.job_id if self._run else None}>"

    @property
    def context(self) -> Context:
        """The context of the job, like that of a handler with ``takes_context``."""
        if self.known_context is None:
            if self._make_context is None:
                raise RuntimeError(_NO_JOB)
            self.known_context = self._make_context()
        return self.known_context

    @property
    def job_id(self) -> int:
        """The id of the job: the same in all of its runs."""
        return self.run.claim.job_id

    @property
    def attempt(self) -> int:
        """The number of this run of the job."""
        return self.run.claim.attempt

    @property
    def run(self) -> Run:
        if self._run is None:
            raise RuntimeError(_NO_JOB)
        return self._run

    def succeed(self, result: Any = None) -> None:
        """Complete the job with this result. It is reported at once, even if other jobs of the chunk fail."""
        self._decide(result, None)

    def fail(self, error: BaseException) -> None:
        """End the run as if its handler had raised this exception. The task decides whether the job is retried."""
        if not isinstance(error, BaseException):
            raise TypeError(f"fail() takes an exception, not {type(error).__name__}")
        self._decide(None, error)

    def _decide(self, result: Any, error: BaseException | None) -> None:
        if self.is_decided or (self._run is not None and self._run.completed):
            raise RuntimeError(f"{self!r} is already decided; a job has one result")
        self.is_decided, self.result, self.error = True, result, error
        self._decided(self)


class Chunk(tuple[ChunkItem, ...]):
    """Some jobs of a task, in the order in which they were claimed."""

    task: Task

    @classmethod
    def of(cls, task: Task, items: Iterable[ChunkItem]) -> Chunk:
        chunk = cls(items)
        chunk.task = task
        return chunk

    def __repr__(self) -> str:
        return f"<Chunk of {len(self)} jobs>"


def call_alone(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call a handler with a chunk of one call without a job. Return its result, or raise its error."""
    call_handler(task, chunk := _chunk_of_one(task, args, kwargs))
    return _result_of(chunk[0])


async def acall_alone(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``call_alone()`` for an event loop."""
    chunk = _chunk_of_one(task, args, kwargs)
    await (task.func(chunk) if iscoroutinefunction(task.func) else sync_to_async(task.func)(chunk))
    return _result_of(chunk[0])


def call_handler(task: Task, chunk: Chunk) -> None:
    """Call the handler in this thread, even if it is async."""
    if iscoroutinefunction(task.func):
        async_to_sync(task.func)(chunk)
    else:
        task.func(chunk)


def _chunk_of_one(task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Chunk:
    _, named = checked(task, args, kwargs)
    return Chunk.of(task, [ChunkItem(dict(named))])


def _result_of(item: ChunkItem) -> Any:
    if item.error is not None:
        raise item.error
    return item.result


def check_chunk(task: Task, options: Options) -> None:
    """Raise InvalidTask for options that cannot be combined with chunks."""
    name, chunk, chunk_wait = task.func.__name__, options.chunk, options.chunk_wait
    if chunk is None:
        if chunk_wait is not None:
            raise InvalidTask("chunk_wait: give chunk, too.")
        return
    if task.takes_context:
        raise InvalidTask("chunk: omit takes_context. The handler takes the chunk, and each job of it has a context.")
    if options.weight != 1:
        raise InvalidTask("chunk: omit weight. A chunk takes one slot, and each of its jobs counts once in its limit.")
    if options.atomic:
        raise InvalidTask("chunk: atomic=True completes one job. Use the context.atomic() of each job of the chunk.")
    if options.isolation == Isolation.PROCESS:
        raise InvalidTask("chunk: isolation='process' is a process for one job.")
    try:
        signature(task.func).bind(None)
    except TypeError:
        raise InvalidTask(f"chunk: {name}() must take one argument, the chunk.") from None
    for option in ("timeout", "progress_timeout"):
        longest = getattr(options, option)
        if chunk_wait is not None and longest is not None and chunk_wait >= longest:
            raise InvalidTask(f"chunk_wait: {chunk_wait} is not shorter than {option}, which counts from the claim.")
