"""Loops that use the database, in a keeper and in ``pulse_watchdog``.

Each has a thread of its own, a connection of its own with timeouts, and shows that it still turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from .guarded_connection import GuardedConnection, keep_calling
from .loop_liveness import LoopLiveness
from .needed_threads import NeededThreads

Step = Callable[[], float]
"""Does one step, and returns for how many seconds to wait until the next."""


@dataclass(frozen=True, slots=True)
class Loop:
    connection: GuardedConnection
    run: Callable[[], object]

    @property
    def name(self) -> str:
        return self.connection.purpose


class Loops:
    def __init__(self, died: Callable[[str, str], object]) -> None:
        """``died`` is called with the name of a thread that ended too early, and with what ended it."""
        self.over = threading.Event()
        self.liveness = LoopLiveness()
        self.threads = NeededThreads(died)
        self._loops: list[Loop] = []

    def connection(self, alias: str, name: str, pause: float) -> GuardedConnection:
        """Return a connection for a loop of that name that pauses for at most so many seconds."""
        return self.liveness.connection(alias, name, pause)

    def add(self, connection: GuardedConnection, step: Step, last: Callable[[], None] | None = None) -> None:
        """Call ``step`` again and again on this connection, and ``last`` at the end."""
        followed = self.liveness.following(connection.purpose, step)
        self._loops.append(Loop(connection, partial(keep_calling, connection, self.over, followed, last)))

    def add_run(self, connection: GuardedConnection, run: Callable[[threading.Event], object]) -> None:
        """Add a loop that has a way of its own to run until it is over."""
        self._loops.append(Loop(connection, partial(run, self.over)))

    def start(self) -> None:
        for loop in self._loops:
            self.threads.start(loop.name, loop.run, self.over)

    def __iter__(self) -> Iterator[Loop]:
        return iter(self._loops)

    def enforce(self, now: float) -> None:
        """Close connections that have not answered in time. Called by a thread that never asks the database."""
        for loop in self._loops:
            loop.connection.enforce(now)

    def restart_dead(self) -> list[str]:
        """Start threads again that ended too early. Return their names."""
        self.threads.check()
        return self.threads.restart_dead()

    @property
    def is_running(self) -> bool:
        return any(self.threads.is_alive(loop.name) for loop in self._loops)
