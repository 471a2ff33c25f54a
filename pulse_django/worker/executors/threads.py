"""Sync handlers, each in a thread. A thread can be asked to stop; it cannot be forced."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from pulse_django.execution.execute import Performed, judged, perform
from pulse_django.execution.run import Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.error_details import ErrorReport
from pulse_django.words.outcomes import Failed
from pulse_django.worker.needed_threads import Start, start_thread

from . import Begin, Done
from .connection_cleanup import tidy_connections
from .run_queue import RunQueue

logger = SafeLogger("pulse_django.worker")


class Threads:
    """Threads take from one deque until it is empty. Only those that sleep need waking, and not for each run."""

    can_stop = kills = False

    def __init__(
        self,
        slots: int,
        begin: Begin,
        done: Done,
        start: Start = start_thread,
    ) -> None:
        self._slots, self._begin, self._done = slots, begin, done
        self._start_thread = start
        self._waiting = RunQueue()
        self._sleeping: deque[threading.Lock] = deque()
        self._threads: list[threading.Thread] = []

    def submit(self, runs: Sequence[Run]) -> None:
        self._waiting.extend(runs)
        for _ in range(min(len(runs), self._slots)):
            if not self._wake_one():
                break
        while len(self._waiting) > 0 and not self._sleeping and len(self._threads) < self._slots:
            self._start_one()

    def take_back(self) -> list[Run]:
        return self._waiting.take_back()

    def stop(self, run: Run) -> bool:
        return False

    def _start_one(self) -> None:
        self._threads.append(self._start_thread(f"handler-{len(self._threads) + 1}", self._work))

    def _wake_one(self) -> bool:
        try:
            self._sleeping.popleft().release()
        except IndexError:
            return False
        return True

    def _work(self) -> None:
        bed = threading.Lock()
        bed.acquire()
        while True:
            run = self._waiting.next()
            if run is None:
                self._sleep(bed)
                continue
            if not self._begin(run):
                with suppress(Exception):
                    self._done(run, None)
                continue
            performed = self._perform(run)
            try:
                self._done(run, performed)
            except Exception:  # this thread must live on
                logger.exception("Recording the end of a run failed")

    def _perform(self, run: Run) -> Performed:
        """Run a handler and clean up after it. Whatever goes wrong, there is something to report."""
        try:
            performed = perform(run)
        except BaseException as error:
            performed = judged(run, None, Failed(ErrorReport.of(error)), error)
        performed.ended_at = time.monotonic()
        try:
            tidy_connections()
        except Exception:
            logger.exception("Cleaning up the connections of a handler failed")
        return performed

    def _sleep(self, bed: threading.Lock) -> None:
        self._sleeping.append(bed)
        if self._waiting and self._wake_one():  # something came in between: one thread is awake
            pass
        bed.acquire()
