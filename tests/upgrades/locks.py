"""Somebody who looks every few milliseconds who holds locks that keep a queue waiting, and for how long."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import psycopg

LOOK_EVERY = 0.02

# Modes that keep workers and enqueuers waiting, on our tables and on the indexes of them.
_HELD = """
SELECT held.pid, class.relname, held.mode
FROM pg_locks AS held
JOIN pg_class AS class ON class.oid = held.relation
WHERE held.granted AND class.relname LIKE 'pulse\\_%'
    AND held.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND held.mode IN ('AccessExclusiveLock', 'ExclusiveLock', 'ShareRowExclusiveLock', 'ShareLock')
"""


class Holding(NamedTuple):
    """Who held what."""

    pid: int
    relation: str
    mode: str


class LockWatch:
    """For how long each lock was held. At most: between looks that did not see it. At least: between looks that did.

    A machine that is busy looks late, and says little about the former.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.at_most: dict[Holding, float] = {}
        self.at_least: dict[Holding, float] = {}
        self.longest_gap = 0.0  # between two looks: what is shorter may have been overlooked
        self._since: dict[Holding, tuple[float, float]] = {}  # the last look without it, the first with it
        self._looked_at = time.monotonic()

    def look(self, connection: psycopg.Connection) -> None:
        held = {Holding(*row) for row in connection.execute(_HELD)}
        now = time.monotonic()
        for holding in held | self._since.keys():
            before, seen = self._since.setdefault(holding, (self._looked_at, now))
            self.at_most[holding] = max(self.at_most.get(holding, 0.0), now - before)
            if holding in held:
                self.at_least[holding] = max(self.at_least.get(holding, 0.0), now - seen)
            else:
                del self._since[holding]
        self.longest_gap = max(self.longest_gap, now - self._looked_at)
        self._looked_at = now
        self.looks += 1

    def longer_than(self, seconds: float) -> dict[Holding, float]:
        """Return those that were surely held for longer."""
        return {holding: held for holding, held in self.at_least.items() if held > seconds}


@contextmanager
def watched_locks(url: str) -> Iterator[LockWatch]:
    """Look until the block ends."""
    watch, over = LockWatch(), threading.Event()

    def run() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.wait(LOOK_EVERY):
                watch.look(connection)
            watch.look(connection)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield watch
    finally:
        over.set()
        thread.join()
