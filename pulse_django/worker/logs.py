"""Writes the log of a worker's process in a thread of its own: a log handler that hangs delays nothing else.

It writes to streams itself. Other log handlers have a thread each (``log_asides``), and get their lines from it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue

from pulse_django.safe_logging import SafeLogger, Written, write_now

from . import log_asides
from .log_asides import Asides
from .log_batches import Entry, write_all

# Lines that wait to be written. Beyond that, a thread that logs waits as long as lines are being written. If none was
# written for PATIENCE seconds, a log handler hangs: then new lines are dropped, and counted.
MOST_WAITING = 10_000
PATIENCE, PAUSE = 0.5, 0.001
MOST_AT_ONCE = 1_000
TICK = 0.5
# After so many lines at once, wait for a moment before the next batch. Meanwhile no line that is logged wakes this
# thread.
FLOOD, LINGER = 20, 0.02

DROPPED = "Dropped %d log lines: a log handler is too slow or hangs"

_ours = logging.getLogger("pulse_django.worker")


class LogWriter:
    def __init__(self) -> None:
        self.dropped = 0
        self.over = threading.Event()
        self._asides = Asides()
        self._waiting: SimpleQueue[Entry] = SimpleQueue()
        self._writing = False
        self._moved_at = time.monotonic()  # when it last began or ended to write

    def install(self) -> None:
        """Have every logger of this package write through this."""
        SafeLogger.write = self.put

    def put(self, logger: logging.Logger, line: Written) -> None:
        """Take over a line. Called by any thread. It waits for room, but not for a log handler that hangs."""
        while self._waiting.qsize() >= MOST_WAITING:
            if time.monotonic() - self._moved_at > PATIENCE:
                self.dropped += 1
                return
            time.sleep(PAUSE)  # this happens only in a flood, and a condition variable would need a lock for each line
        self._waiting.put((logger, line))

    def run(self) -> None:
        """Write lines until closed."""
        while not self.over.is_set():
            self.run_once()

    def run_once(self) -> None:
        """Write what is waiting, or wait for a line."""
        try:
            first = self._waiting.get(timeout=TICK)
        except Empty:
            write_all(self._notices(), self._asides)
            return
        self._writing, self._moved_at = True, time.monotonic()
        try:
            lines = [first, *self._next()]
            self._write(lines)
        finally:
            self._writing = False
            self._moved_at = time.monotonic()
        if len(lines) > FLOOD and self._waiting.empty():
            self.over.wait(LINGER)

    def close(self, patience: float) -> None:
        """Wait until everything is written, or that many seconds have passed. Loggers write for themselves again."""
        SafeLogger.write = staticmethod(write_now)
        until = time.monotonic() + patience
        while not (is_written := self._is_written) or not self._asides.is_idle:
            if time.monotonic() >= until:
                break
            time.sleep(0.002)
        self.over.set()
        if is_written:
            write_all(self._notices(at_end=True), _NO_ASIDES)

    @property
    def _is_written(self) -> bool:
        return not self._writing and self._waiting.empty()

    def _next(self) -> Iterator[Entry]:
        with suppress(Empty):
            for _ in range(MOST_AT_ONCE):
                yield self._waiting.get_nowait()

    def _write(self, lines: list[Entry]) -> None:
        dropped, self.dropped = self.dropped, 0
        if dropped:
            lines.append(_notice(DROPPED, dropped))
        write_all([*lines, *self._notices()], self._asides)

    def _notices(self, *, at_end: bool = False) -> list[Entry]:
        """Say which log handlers lost lines."""
        return [_notice(log_asides.DROPPED, *facts) for facts in self._asides.notices(at_end=at_end)]


def _notice(text: str, *values: object) -> Entry:
    return _ours, _ours.makeRecord(_ours.name, logging.WARNING, __file__, 0, text, values, None)


class _NoAsides(Asides):
    """At the end: handlers with a thread of their own get no more lines."""

    def handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        pass


_NO_ASIDES = _NoAsides()
