"""Sync handlers, each in a thread. A thread can be told to stop; it cannot be made to."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from ...performing import Performed, perform
from ...runs import Run
from .tidiness import tidy_connections


class Threads:
    def __init__(self, slots: int, begin: Callable[[Run], bool], done: Callable[[Run, Performed | None], None]) -> None:
        self._slots, self._begin, self._done = slots, begin, done
        self._inbox: SimpleQueue[Run | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0  # a guess: threads that wait. Too low starts one too many, never more than there are slots

    def submit(self, runs: Sequence[Run]) -> None:
        for run in runs:
            self._inbox.put(run)
        while self._idle < self._inbox.qsize() and len(self._threads) < self._slots:
            thread = threading.Thread(target=self._work, name=f"handler-{len(self._threads) + 1}", daemon=True)
            self._threads.append(thread)
            self._idle += 1
            thread.start()

    def take_back(self) -> list[Run]:
        taken: list[Run] = []
        while True:
            try:
                run = self._inbox.get_nowait()
            except Empty:
                return taken
            if run is not None:
                taken.append(run)

    def stop(self, run: Run) -> bool:
        return False

    def close(self) -> None:
        for _ in self._threads:
            self._inbox.put(None)

    def _work(self) -> None:
        pid = os.getpid()
        while (run := self._inbox.get()) is not None:
            if not self._begin(run):
                self._done(run, None)
                continue
            self._idle -= 1
            performed = perform(run)
            if os.getpid() != pid:
                os._exit(0)  # a child that the handler forked and let return: it is no worker
            performed.ended_at = time.monotonic()
            tidy_connections()
            self._idle += 1
            self._done(run, performed)
