"""The threads in which async handlers use the ORM. Each keeps its connections for the next run."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

from pulse_django.safe_logging import SafeLogger

from .connection_cleanup import KEPT_IDLE, close_connections, ready_connections, tidy_connections

logger = SafeLogger("pulse_django.worker")


class OrmThreads:
    """Lends each thread to one run at a time."""

    def __init__(self) -> None:
        self._idle: deque[tuple[float, ThreadPoolExecutor]] = deque()  # since when; the latest at the end

    def take(self) -> ThreadPoolExecutor:
        """Return a thread that no run uses."""
        try:
            return self._idle.pop()[1]
        except IndexError:
            return ThreadPoolExecutor(max_workers=1, thread_name_prefix="orm")

    def give_back(self, thread: ThreadPoolExecutor) -> None:
        """Clean up after a run, and keep the thread for the next. Called in that thread."""
        try:
            tidy_connections()
            ready_connections()
        except Exception:
            logger.exception("Cleaning up the connections of a handler failed")
        self._idle.append((time.monotonic(), thread))

    def end_idle(self, kept: float = KEPT_IDLE) -> None:
        """End the threads that no run needed for so many seconds, and close their connections."""
        while self._idle and time.monotonic() - self._idle[0][0] >= kept:
            try:
                _, thread = self._idle.popleft()
            except IndexError:  # a run has just taken it
                return
            thread.submit(close_connections)
            thread.shutdown(wait=False)


class ThreadOfRun(Executor):
    """The thread of one run. It is taken when the run first needs it."""

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
        """Return what is done once the thread has ended what this run left in it. None: it never took one."""
        self._is_over = True
        if self._thread is None:
            return None
        return self._thread.submit(self._threads.give_back, self._thread)
