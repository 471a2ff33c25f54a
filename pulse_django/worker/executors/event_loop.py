"""Runs all async handlers on one event loop. They can be cancelled at an await."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor as FuturesExecutor
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

from asgiref.sync import SyncToAsync, ThreadSensitiveContext

from pulse_django.queue.words.outcomes import Failed
from pulse_django.run.execute import perform_async
from pulse_django.run.judging import judged, report_of
from pulse_django.run.registry import registry
from pulse_django.run.run import Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.worker.handler_stacks import stack_of_coroutine
from pulse_django.worker.needed_threads import Start, start_thread

from . import Begin, Done, Executor
from .connection_cleanup import KEPT_IDLE, close_connections, ready_connections, tidy_connections

logger = SafeLogger("pulse_django.worker")


class EventLoop(Executor):
    can_stop = True

    def __init__(self, slots: int, begin: Begin, done: Done, start: Start = start_thread) -> None:
        super().__init__(slots, begin, done, start)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._orm_threads = OrmThreads()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: int | None = None
        self._filling = False

    def submit(self, runs: Sequence[Run]) -> None:
        loop = self._loop or self._start()
        self._waiting.extend(runs)
        loop.call_soon_threadsafe(self._fill)

    def stop(self, run: Run) -> bool:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel, run)
        return True

    def stack_of(self, run: Run) -> str:
        task = self._tasks.get(id(run))
        return "" if task is None else stack_of_coroutine(task.get_coro(), self._thread)

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        if eager := getattr(asyncio, "eager_task_factory", None):  # since Python 3.12
            loop.set_task_factory(eager)
        self._loop = loop
        self._thread = self._start_thread("event-loop", partial(_serve, loop)).ident
        loop.call_soon_threadsafe(self._end_idle_threads)
        return loop

    def _end_idle_threads(self) -> None:
        assert self._loop is not None  # noqa: S101 - for the type checker
        self._loop.call_later(KEPT_IDLE, self._end_idle_threads)
        self._orm_threads.end_idle()

    def _fill(self) -> None:
        if self._filling:
            return  # called by an eager task that ended within the loop below
        assert self._loop is not None  # noqa: S101 - for the type checker
        self._filling = True
        try:
            while len(self._tasks) < self._slots and (run := self._waiting.next()) is not None:
                if not self._begin(run):
                    self._done(run, None)
                    continue
                task = self._loop.create_task(self._perform(run))
                if not task.done():
                    self._tasks[id(run)] = task
        finally:
            self._filling = False

    def _cancel(self, run: Run) -> None:
        task = self._tasks.get(id(run))
        if task is not None:
            task.cancel()

    async def _perform(self, run: Run) -> None:
        task = registry.get(run.claim.task)
        # A thread for each run, so that runs do not close or reset each other's connections.
        mine, thread = ThreadSensitiveContext(), ThreadOfRun(self._orm_threads)
        SyncToAsync.context_to_thread_executor[mine] = thread
        token = SyncToAsync.thread_sensitive_context.set(mine)
        try:
            if task is None:  # it was known at submit
                raise LookupError(run.claim.task)
            performed = await perform_async(run, task)
        except BaseException as error:  # no error may end the loop
            performed = judged(run, task, Failed(report_of(run, error)), error)
        finally:
            SyncToAsync.thread_sensitive_context.reset(token)
        performed.ended_at = time.monotonic()
        tidied = thread.give_back()
        self._tasks.pop(id(run), None)
        if tidied is not None and performed.is_out_of_touch:
            # The attempt is refunded, so the job may run again at once. Wait until all of its parts have ended.
            tidied.add_done_callback(lambda _: self._done(run, performed))
        else:
            self._done(run, performed)
        if self._waiting:
            self._fill()


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    end_copies_of(loop)
    while True:  # a handler may stop it
        try:
            loop.run_forever()
        except (SystemExit, KeyboardInterrupt) as error:
            # asyncio raises these, but they only belong to one task, and the loop can go on.
            logger.error(
                "A task on the event loop raised %s; other tasks continue", type(error).__name__, exc_info=error
            )


def end_copies_of(loop: asyncio.AbstractEventLoop) -> None:
    """Make a process that a handler forks on this loop end, before it goes on with the tasks of other runs.

    Call it in the thread of the loop.
    """
    thread = threading.get_ident()

    def end_copy() -> None:
        if threading.get_ident() == thread:
            with suppress(AttributeError):  # not all loops have it
                loop._ready.clear()  # type: ignore[attr-defined]
            loop.call_soon(os._exit, 0)

    os.register_at_fork(after_in_child=end_copy)


# The threads for the ORM in async handlers. Each keeps its connections for the next run.


class OrmThreads:
    """Lends each thread to one run at a time."""

    def __init__(self) -> None:
        self._idle: deque[tuple[float, ThreadPoolExecutor]] = deque()  # (idle since, thread); the latest at the end

    def take(self) -> ThreadPoolExecutor:
        """Return an unused thread."""
        try:
            return self._idle.pop()[1]
        except IndexError:
            return ThreadPoolExecutor(max_workers=1, thread_name_prefix="orm")

    def give_back(self, thread: ThreadPoolExecutor) -> None:
        """Clean up after a run, and keep the thread for the next one. Call it in that thread."""
        try:
            tidy_connections()
            ready_connections()
        except Exception:
            logger.exception("Cleaning up the connections of a handler failed")
        self._idle.append((time.monotonic(), thread))

    def end_idle(self, kept: float = KEPT_IDLE) -> None:
        """End threads that were idle for so many seconds, and close their connections."""
        while self._idle and time.monotonic() - self._idle[0][0] >= kept:
            try:
                _, thread = self._idle.popleft()
            except IndexError:  # a run has just taken it
                return
            thread.submit(close_connections)
            thread.shutdown(wait=False)


class ThreadOfRun(FuturesExecutor):
    """The thread of one run, taken when the run first needs it."""

    def __init__(self, threads: OrmThreads) -> None:
        self._threads = threads
        self._thread: ThreadPoolExecutor | None = None
        self._is_over = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self._is_over:
            raise RuntimeError("The run is over: it cannot use the ORM any more")
        if self._thread is None:
            self._thread = self._threads.take()
        return self._thread.submit(fn, *args, **kwargs)

    def give_back(self) -> Future[None] | None:
        """Return a future that is done when the thread has finished the work of this run. None: no thread was taken."""
        self._is_over = True
        if self._thread is None:
            return None
        return self._thread.submit(self._threads.give_back, self._thread)
