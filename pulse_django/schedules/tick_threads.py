"""Threads that decide late schedules, and schedules that are decided alone, while the loop decides those in time.

They start when they are needed. Each has a connection of its own. A function of the project that never returns keeps
its thread, and another one starts.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from django.db import connections

from pulse_django.queue.words.payloads import error_in_one_line, one_line
from pulse_django.safe_logging import SafeLogger
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.needed_threads import start_thread

from .ticking import Call, Ticked

logger = SafeLogger("pulse_django.schedules")

# Connections that a backlog and slow functions may use. One thread does nothing that comes last, and one nothing else.
MOST_THREADS = 3
# A thread that decides one schedule for so long is stuck, and does not count. So many more may start.
STUCK_AFTER, MOST_STUCK = 10.0, 8
LINGER = 5.0  # seconds without work until a thread ends


@dataclass(slots=True, eq=False)
class _Work:
    key: int
    name: str
    decide: Callable[[Call], Ticked]
    comes_last: bool
    late_by: float  # seconds; those that are less late come first
    since: float = 0.0  # when it began, by the monotonic clock
    is_logged: bool = False

    @property
    def is_stuck(self) -> bool:
        return time.monotonic() - self.since > STUCK_AFTER


class TickThreads:
    def __init__(self, alias: str, purpose: str) -> None:
        self._alias, self._purpose = alias, purpose
        self._changed = threading.Condition()
        self._waiting: dict[int, _Work] = {}  # by key, in order
        self._running: dict[int, _Work] = {}
        self._databases: dict[GuardedConnection, threading.Thread] = {}
        self._closing = threading.Event()

    @property
    def taken(self) -> list[int]:
        """The keys of work that waits or is being done."""
        with self._changed:
            return [*self._waiting, *self._running]

    def submit(
        self, key: int, name: str, work: Callable[[Call], Ticked], *, comes_last: bool, late_by: float = 0.0
    ) -> None:
        """Do this work in a thread, again as long as it leaves some, unless work with this key is known."""
        with self._changed:
            if key not in self._waiting and key not in self._running:
                self._add(_Work(key, name, work, comes_last, late_by))

    def enforce(self) -> None:
        """Close connections that did not respond in time, and log schedules that are stuck. The loop calls it."""
        with self._changed:
            self._start_if_needed()
            databases = list(self._databases)
            stuck = [work for work in self._running.values() if work.is_stuck and not work.is_logged]
        for database in databases:
            database.enforce(time.monotonic())
        for work in stuck:
            work.is_logged = True
            named = one_line(work.name)
            logger.error("Schedule %s: after %.0f s, it is still being decided", named, STUCK_AFTER)

    def close(self) -> None:
        """End all threads that are not stuck."""
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
            threads = list(self._databases.values())
        for thread in threads:
            thread.join(LINGER)

    def _add(self, work: _Work) -> None:
        self._waiting[work.key] = work
        self._start_if_needed()
        self._changed.notify()

    def _start_if_needed(self) -> None:
        stuck = sum(one.is_stuck for one in self._running.values())
        is_idle = len(self._databases) - len(self._running) >= len(self._waiting)
        if not is_idle and len(self._databases) < MOST_THREADS + min(stuck, MOST_STUCK):
            database = GuardedConnection(self._alias, self._purpose)
            try:
                self._databases[database] = start_thread(self._purpose, lambda: self._run(database))
            except RuntimeError as error:  # the process may have no more; the loop tries again
                logger.error("Late schedules wait for a thread: %s", error_in_one_line(error))

    def _run(self, database: GuardedConnection) -> None:
        while (work := self._next(database)) is not None:
            has_more, pause = False, 0.0
            try:
                for one in connections.all(initialized_only=True):  # of functions of the project
                    if one.alias != self._alias:
                        one.close_if_unusable_or_obsolete()
                has_more = work.decide(database.call).has_more
            except BaseException as error:  # it stays due, and the loop submits it again
                pause = database.failed(error)
            self._closing.wait(pause)
            with self._changed:
                del self._running[work.key]
                if has_more:  # a backlog: others come first
                    self._add(_Work(work.key, work.name, work.decide, comes_last=True, late_by=work.late_by))
                self._changed.notify_all()
        database.hang_up()

    def _next(self, database: GuardedConnection) -> _Work | None:
        """Wait for work. None: the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._closing.is_set() or self._startable() is not None, LINGER)
            work = None if self._closing.is_set() else self._startable()
            if work is None:
                del self._databases[database]
                return None
            del self._waiting[work.key]
            self._running[work.key] = work
            work.since = time.monotonic()
            return work

    def _startable(self) -> _Work | None:
        running = Counter(work.comes_last for work in self._running.values() if not work.is_stuck)
        may_start = [work for work in self._waiting.values() if running[work.comes_last] < MOST_THREADS - 1]
        return min(may_start, key=lambda work: (work.comes_last, work.late_by), default=None)
