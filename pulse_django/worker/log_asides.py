"""Log handlers that may wait, each in a thread of its own: one that hangs costs its own lines and those of no other.

A mail server or a collector that does not answer keeps the handler that asks it waiting for half a minute. What goes to
standard output or standard error is written by ``LogWriter`` itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from queue import SimpleQueue

# Records that wait for one handler. Fewer, and a short wait of a collector costs lines; more, and tracebacks that wait
# for a mail server fill the memory.
MOST_WAITING = 2_000
# Seconds without a written line, until a handler whose queue is full hangs: then its lines are dropped, and counted.
PATIENCE, PAUSE = 0.5, 0.001
BETWEEN_NOTICES = 10.0  # seconds

DROPPED = "Dropped %d log lines of the log handler %s: it is too slow or hangs"


class Aside:
    """One handler, and what waits for it."""

    def __init__(self, handler: logging.Handler) -> None:
        self.handler = handler
        self.dropped = 0
        self._told_at = float("-inf")
        self._waiting: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._written = self._put = 0
        self._moved_at = time.monotonic()
        name = f"log-{type(handler).__name__}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def waiting(self) -> int:
        return self._put - self._written

    def put(self, record: logging.LogRecord) -> None:
        """Take over a record. Wait for room as long as the handler writes."""
        while self.waiting >= MOST_WAITING:
            if time.monotonic() - self._moved_at > PATIENCE:
                self.dropped += record.msg != DROPPED  # what tells of dropped lines is none of them
                return
            time.sleep(PAUSE)
        if not self.waiting:
            self._moved_at = time.monotonic()
        self._put += 1
        self._waiting.put(record)

    def notice(self, *, at_end: bool = False) -> tuple[int, str] | None:
        """Return what is to be told of dropped lines, now and then. At the end what waits is dropped, too."""
        now = time.monotonic()
        dropped = self.dropped + (self.waiting if at_end else 0)
        if not dropped or (now - self._told_at < BETWEEN_NOTICES and not at_end):
            return None
        self._told_at, self.dropped = now, 0
        return dropped, type(self.handler).__name__

    def _run(self) -> None:
        while True:
            record = self._waiting.get()
            with suppress(BaseException):  # of a handler, a filter or a formatter of the project's
                self.handler.handle(record)
            self._written += 1
            self._moved_at = time.monotonic()


class Asides:
    """The handlers of a process that have a thread of their own. One thread uses this."""

    def __init__(self) -> None:
        self._asides: dict[logging.Handler, Aside] = {}

    def handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        if handler not in self._asides:
            self._asides[handler] = Aside(handler)
        self._asides[handler].put(record)

    @property
    def is_idle(self) -> bool:
        return not any(one.waiting for one in list(self._asides.values()))

    def notices(self, *, at_end: bool = False) -> Iterator[tuple[int, str]]:
        for one in list(self._asides.values()):
            if (notice := one.notice(at_end=at_end)) is not None:
                yield notice
