"""Runs sync handlers in threads. A thread can be asked to stop, but not be forced."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from pulse_django.queue.words.outcomes import Failed
from pulse_django.run.execute import perform
from pulse_django.run.judging import judged, report_of
from pulse_django.run.run import Performed, Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.worker.handler_stacks import stack_of_thread
from pulse_django.worker.needed_threads import Start, start_thread

from . import Begin, Done, Executor
from .connection_cleanup import KEPT_IDLE, close_connections, has_connections, ready_connections, tidy_connections

logger = SafeLogger("pulse_django.worker")


# Seconds. A shorter run is "short": waking a second thread for the next run would take longer than the run, and the two
# would compete for the interpreter. A single ORM query is not short: while one thread waits for the database, another
# one can work.
SHORT = 0.0002
PATIENCE_WITH_ONE = 0.005  # seconds for one run; then other threads take the next ones
MOST_SLOW = 0.2  # the share of slow runs up to which one thread runs all of them
# Below this share, other threads go to sleep. About one run in some hundreds seems slow only because another thread had
# the interpreter.
NONE_SLOW = 0.01


class Threads(Executor):
    """Threads that take runs from one deque until it is empty, and then sleep.

    While runs are short, one thread runs all of them. After a slow run, it wakes another thread. While a handler does
    not return, ``hurry`` wakes the others.
    """

    def __init__(
        self,
        slots: int,
        begin: Begin,
        done: Done,
        start: Start = start_thread,
        turned_short: Callable[[], None] = lambda: None,
    ) -> None:
        """``turned_short`` is called when one thread begins to run all. From then on, call ``hurry`` often."""
        super().__init__(slots, begin, done, start)
        self._turned_short = turned_short
        self._sleeping: deque[threading.Lock] = deque()
        self._threads: list[threading.Thread] = []
        self._running: dict[int, Run] = {}  # the latest run of each thread
        self._starting = threading.Lock()
        self._slow = 1.0  # the share of recent runs that were not short
        self._ended = self._ended_before = self._ended_at_last_rest = 0
        self._looked_at = float("-inf")

    @property
    def works_in_a_row(self) -> bool:
        """Return whether one thread runs all waiting runs."""
        return self._slow < MOST_SLOW and len(self._waiting) > 0

    def submit(self, runs: Sequence[Run]) -> None:
        self._waiting.extend(runs)
        if self._slow >= MOST_SLOW:
            self._wake(min(len(runs), self._slots))
        elif len(self._sleeping) == len(self._threads):
            self._looked_at = time.monotonic()
            self._wake(1)

    def hurry(self) -> None:
        """Wake more threads if one handler delays the thread that runs all short ones.

        Call it often while ``works_in_a_row``.
        """
        now = time.monotonic()
        if self._ended != self._ended_before:
            self._ended_before, self._looked_at = self._ended, now
        elif now - self._looked_at > PATIENCE_WITH_ONE and self.works_in_a_row:
            self._slow = 1.0
            self._wake(min(len(self._waiting), self._slots))

    def _wake(self, count: int) -> None:
        """Wake so many sleeping threads. Start a thread if there are too few."""
        woken = 0
        while woken < count and self._wake_one():
            woken += 1
        while woken < count and self._waiting and self._start_one():
            woken += 1

    def stack_of(self, run: Run) -> str:
        thread = next((ident for ident, latest in list(self._running.items()) if latest is run), None)
        found = "" if thread is None else stack_of_thread(thread)
        return found if thread is not None and self._running.get(thread) is run else ""

    def _start_one(self) -> bool:
        with self._starting:
            if len(self._threads) >= self._slots:
                return False
            self._threads.append(self._start_thread(f"handler-{len(self._threads) + 1}", self._work))
        return True

    def _wake_one(self) -> bool:
        try:
            self._sleeping.pop().release()  # the last one that fell asleep still has open connections
        except IndexError:
            return False
        return True

    def _work(self) -> None:
        wake_lock = threading.Lock()
        wake_lock.acquire()
        ended, ident = self._ended, threading.get_ident()
        while True:
            run = None if self._is_not_needed(ended) else self._waiting.next()
            ended = self._ended
            if run is None:
                self._sleep(wake_lock)
                continue
            if not self._begin(run):
                with suppress(Exception):
                    self._done(run, None)
                continue
            self._running[ident] = run
            performed = self._perform(run)
            try:
                self._done(run, performed)
                self._learn((performed.ended_at or 0.0) - (run.begun_at or 0.0))
            except Exception:  # this thread must go on
                logger.exception("Recording the end of a run failed")

    def _learn(self, took: float) -> None:
        """Adapt the number of working threads to the duration of runs. Several threads call it; it may be inexact."""
        self._ended += 1
        if took < SHORT:
            was_slow, self._slow = self._slow, self._slow * 0.9
            if was_slow >= MOST_SLOW > self._slow:
                self._turned_short()
            return
        self._slow = self._slow * 0.9 + 0.1
        if self._waiting and self._slow >= MOST_SLOW:
            self._wake(1)

    def _is_not_needed(self, ended_before: int) -> bool:
        """Return whether a thread can go to sleep although runs wait: all are short, and other threads end them.

        Only one at a time. If two went to sleep together, only a thread whose handler does not return might be left.
        """
        if self._slow >= NONE_SLOW or self._ended - ended_before <= 1:
            return False
        with self._starting:
            if self._ended - self._ended_at_last_rest <= 1:
                return False
            self._ended_at_last_rest = self._ended
            return True

    def _perform(self, run: Run) -> Performed:
        """Run a handler and clean up after it. Return a report, whatever goes wrong."""
        _do_safely(ready_connections)
        try:
            performed = perform(run)
        except BaseException as error:
            performed = judged(run, None, Failed(report_of(run, error)), error)
        performed.ended_at = time.monotonic()
        _do_safely(tidy_connections)
        return performed

    def _sleep(self, wake_lock: threading.Lock) -> None:
        self._sleeping.append(wake_lock)
        if self._waiting and (self._slow >= MOST_SLOW or len(self._sleeping) == len(self._threads)):
            self._wake_one()  # a run was submitted meanwhile
        if has_connections():
            _do_safely(ready_connections)
            if wake_lock.acquire(timeout=KEPT_IDLE):
                return
            _do_safely(close_connections)
        wake_lock.acquire()


def _do_safely(see_to_connections: Callable[[], None]) -> None:
    try:
        see_to_connections()
    except Exception:
        logger.exception("Cleaning up the connections of a handler failed")
