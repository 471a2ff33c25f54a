"""Loops that use the database, in a keeper and in ``pulse_watchdog``.

Each has its own thread and its own connection with timeouts, and records its turns.
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
"""Does one step, and returns the seconds to wait before the next."""


MAIN = "main"
PAUSES = 3  # pauses without a turn after which a loop counts as hanging
# Seconds. If shorter, a host that was paused for a moment looks dead.
SHORTEST_PATIENCE = 10.0
# For loops that use the database. To connect may need a DNS lookup, which cannot be interrupted, and takes half a
# minute and more if DNS does not respond. If shorter, workers are restarted for that. If longer, a hanging worker
# stays.
PATIENCE_WITH_DATABASE = 60.0


class Loops:
    """Loops, whose turns the HTTP port checks. A step counts as a turn when it begins, and with each statement.

    If the database is down, steps fail, but failing loops still turn. So an outage does not look like a hanging worker,
    and the supervisor does not restart all workers.
    """

    def __init__(self, died: Callable[[str, str], object]) -> None:
        """``died`` is called with the name of a thread that ended too early, and the reason."""
        self.over = threading.Event()
        self.threads = NeededThreads(died)
        self.main_turned_at = time.monotonic()
        self._loops: list[tuple[GuardedConnection, Callable[[], object]]] = []
        self._patience: dict[GuardedConnection, float] = {}  # seconds that a loop may be without a turn

    def add(
        self, connection: GuardedConnection, step: Step, pause: float, last: Callable[[], None] | None = None
    ) -> None:
        """Call ``step`` repeatedly, with pauses of at most so many seconds, and ``last`` at the end."""

        def followed() -> float:
            connection.turned_at = time.monotonic()
            return step()

        self._patience[connection] = max(PATIENCE_WITH_DATABASE, PAUSES * max(pause, longest_wait()))
        self._loops.append((connection, partial(keep_calling, connection, self.over, followed, last)))

    def start(self) -> None:
        for connection, run in self._loops:
            self.threads.start(connection.purpose, run, self.over)

    def enforce(self, now: float) -> None:
        """Close connections that did not respond in time. A thread calls it that never uses the database."""
        for connection, _ in self._loops:
            connection.enforce(now)

    def restart_dead(self) -> list[str]:
        """Restart threads that ended too early. Return their names."""
        self.threads.check()
        return self.threads.restart_dead()

    @property
    def is_running(self) -> bool:
        return any(self.threads.is_alive(connection.purpose) for connection, _ in self._loops)

    def hanging(self) -> dict[str, float]:
        """Return the hanging loops, with the seconds since their last turn."""
        now = time.monotonic()
        silent = [(MAIN, now - self.main_turned_at, SHORTEST_PATIENCE)]
        silent += [(one.purpose, now - one.turned_at, patience) for one, patience in self._patience.items()]
        return {name: seconds for name, seconds, patience in silent if seconds > patience}


# The loops of a watchdog, in a worker and in ``pulse_watchdog``: sweeps, and the loops of capabilities.


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
    """Add these loops to ``loops``, before they start. Return their connections.

    ``watches``: also run the watchdog. ``declarer``: the worker whose code writes declarations. ``of_shard`` is the
    suffix of the names of the loops.
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
            loops.add(database, loop(database, facts).run_once, loop.longest_pause)
            databases.append(database)
    return databases
