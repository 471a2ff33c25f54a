"""Wait for jobs to end. Each poll is one statement for all waits of this process on a database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache

from django.db import connections

from pulse_django.models import Job
from pulse_django.queue.words.states import HOT

# Seconds between two polls. A shorter first pause wastes polls. A longer last one delays the end of a long wait.
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 1.0
SLOWER = 1.5


class EndWatcher:
    """A thread that exists while there are waits. Each wait is a future, which is done when its job has ended, was
    deleted, or has moved to another shard."""

    def __init__(self, alias: str) -> None:
        self._alias = alias
        self._lock = threading.Lock()
        self._waits: dict[Future[None], int] = {}
        self._changed = threading.Event()  # a wait began, or the last one ended
        self._thread: threading.Thread | None = None

    @contextmanager
    def watching(self, job_id: int) -> Iterator[Future[None]]:
        future: Future[None] = Future()
        future.set_running_or_notify_cancel()  # so that asyncio cannot cancel it after a timeout
        with self._lock:
            self._waits[future] = job_id
            if self._thread is None or not self._thread.is_alive():  # as in a forked process
                self._thread = threading.Thread(target=self._run, name="waits for results", daemon=True)
                self._thread.start()
        self._changed.set()
        try:
            yield future
        finally:
            with self._lock:
                self._waits.pop(future, None)
                if not self._waits:
                    self._changed.set()

    def _run(self) -> None:
        pause = FIRST_PAUSE
        try:
            while True:
                if self._changed.wait(pause):
                    self._changed.clear()
                    pause = FIRST_PAUSE
                    time.sleep(pause)  # a new wait has just polled, and more may begin
                else:
                    pause = min(pause * SLOWER, LONGEST_PAUSE)
                with self._lock:
                    waits = dict(self._waits)
                    if not waits:
                        self._thread = None
                        return
                self._look(waits)
        finally:
            connections[self._alias].close()

    def _look(self, waits: dict[Future[None], int]) -> None:
        jobs = Job.objects.using(self._alias).filter(era=HOT, finished_at=None)
        error = None
        try:
            waiting = set(jobs.filter(pk__in=set(waits.values())).values_list("pk", flat=True))
        except Exception as failed:  # each wait raises it, as its own poll would have
            waiting, error = set(), failed
            connections[self._alias].close()  # it may be broken, and new waits need another one
        for future, job_id in waits.items():
            if job_id in waiting:
                continue
            with self._lock:
                self._waits.pop(future, None)
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


watcher_of = cache(EndWatcher)  # by database alias
