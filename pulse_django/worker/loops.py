"""Loops that use the database, in a keeper and in ``pulse_watchdog``.

Each has a thread of its own, a connection of its own with timeouts, and shows that it still turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from pulse_django import conf
from pulse_django.queue.capability import LoopFacts, installed

from .guarded_connection import GuardedConnection, keep_calling, longest_wait
from .heartbeat import Heartbeat
from .needed_threads import NeededThreads
from .watchdog import Swept, Watchdog

Step = Callable[[], float]
"""Does one step, and returns for how many seconds to wait until the next."""


MAIN = "main"
PAUSES = 3  # that a loop may leave out
# Seconds. Shorter, and a host that was paused for a moment looks dead.
SHORTEST_PATIENCE = 10.0
# Of loops that ask the database. Connecting to it may wait for a resolver, which cannot be interrupted: half a minute
# and more while names are not answered. Shorter restarts workers for that; longer leaves one that hangs.
PATIENCE_WITH_DATABASE = 60.0


class Loops:
    """The HTTP port asks which of them turn. A step turns when it begins, and with each statement.

    A database that is away makes steps fail, and loops that fail turn all the same. So an outage is never taken for a
    worker that hangs, and its supervisor would restart it together with all the others.
    """

    def __init__(self, died: Callable[[str, str], object]) -> None:
        """``died`` is called with the name of a thread that ended too early, and with what ended it."""
        self.over = threading.Event()
        self.threads = NeededThreads(died)
        self.main_turned_at = time.monotonic()
        self._loops: list[tuple[GuardedConnection, Callable[[], object]]] = []
        self._patience: dict[GuardedConnection, float] = {}  # for how long a loop may not turn

    def add(
        self, connection: GuardedConnection, step: Step, pause: float, last: Callable[[], None] | None = None
    ) -> None:
        """Call ``step`` again and again, with pauses of at most so many seconds, and ``last`` at the end."""

        def followed() -> float:
            connection.turned_at = time.monotonic()
            return step()

        self._patience[connection] = max(PATIENCE_WITH_DATABASE, PAUSES * max(pause, longest_wait()))
        self._loops.append((connection, partial(keep_calling, connection, self.over, followed, last)))

    def start(self) -> None:
        for connection, run in self._loops:
            self.threads.start(connection.purpose, run, self.over)

    def enforce(self, now: float) -> None:
        """Close connections that have not answered in time. Called by a thread that never asks the database."""
        for connection, _ in self._loops:
            connection.enforce(now)

    def restart_dead(self) -> list[str]:
        """Start threads again that ended too early. Return their names."""
        self.threads.check()
        return self.threads.restart_dead()

    @property
    def is_running(self) -> bool:
        return any(self.threads.is_alive(connection.purpose) for connection, _ in self._loops)

    def hanging(self) -> dict[str, float]:
        """Return the loops that should have turned long ago, and for how many seconds they have not."""
        now = time.monotonic()
        silent = [(MAIN, now - self.main_turned_at, SHORTEST_PATIENCE)]
        silent += [(one.purpose, now - one.turned_at, patience) for one, patience in self._patience.items()]
        return {name: seconds for name, seconds, patience in silent if seconds > patience}


# The loops of a watchdog, in a worker and in ``pulse_watchdog``: sweeps, and what capabilities do beside them.


def add_watchdog(
    loops: Loops,
    alias: str,
    *,
    interval: float | None = None,
    watches: bool = True,
    declarer: str = "",
    beats: Heartbeat | None = None,
    ended: Callable[[], object] = lambda: None,
    swept: Callable[[Swept], object] = lambda _: None,
    of_shard: str = "",
) -> list[GuardedConnection]:
    """Add them to the loops that are about to start. Return their connections.

    ``watches``: sweep, and do what goes with it. ``declarer``: the worker whose code declarations follow.
    ``of_shard`` is what the names of the loops end with.
    """
    interval, watchdog = interval or conf.current().watchdog_interval.total_seconds(), None
    databases = []

    def fleet_size() -> int:
        return 1 if beats is None else beats.fleet_size

    def sweep(watchdog: Watchdog) -> float:
        if (done := watchdog.take_turn()) is not None:
            swept(done)
        return watchdog.pause_after(done, fleet_size())

    if watches:
        watchdog = Watchdog(GuardedConnection(alias, f"watchdog{of_shard}"), interval, beats, ended)
        loops.add(watchdog.database, partial(sweep, watchdog), interval)
        databases.append(watchdog.database)
    facts = LoopFacts(watches, lambda: watchdog.found.with_work if watchdog else frozenset(), declarer, fleet_size)
    for loop in [loop for capability in installed() for loop in capability.loops]:
        if watches or not loop.is_of_watchdogs:
            database = GuardedConnection(alias, f"{loop.purpose}{of_shard}")
            loops.add(database, loop.start(database, facts), loop.longest_pause)
            databases.append(database)
    return databases
