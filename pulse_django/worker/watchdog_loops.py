"""The loops of a watchdog, in a worker and in ``pulse_watchdog``: sweeps, statistics of minutes, and schedules."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from pulse_django import conf

from .guarded_connection import GuardedConnection
from .loops import Loops
from .minute_recorder import PAUSE, MinuteRecorder
from .schedule_loop import LONGEST_PAUSE, ScheduleLoop
from .watchdog import Beats, Swept, Watchdog


class WatchdogLoops:
    def __init__(
        self,
        loops: Loops,
        alias: str,
        *,
        interval: float | None = None,
        watches: bool = True,
        declarer: str = "",
        beats: Beats | None = None,
        ended: Callable[[], object] = lambda: None,
        fleet_size: Callable[[], int] = lambda: 1,
        swept: Callable[[Swept], object] = lambda _: None,
        of_shard: str = "",
    ) -> None:
        """``watches``: sweep, record minutes and fire ticks. ``declarer``: the worker whose code schedules follow.

        ``of_shard`` is what the names of the loops end with.
        """
        interval = interval or conf.current().watchdog_interval.total_seconds()
        self._loops, self._fleet_size, self._swept = loops, fleet_size, swept
        watchdog = None
        self._parts: list[MinuteRecorder | ScheduleLoop] = []
        self.databases: list[GuardedConnection] = []
        if watches:
            watchdog = Watchdog(loops.connection(alias, f"watchdog{of_shard}", interval), interval, beats, ended)
            self._parts.append(MinuteRecorder(loops.connection(alias, f"minutes{of_shard}", PAUSE)))
            self.databases.append(watchdog.database)
        schedules = loops.connection(alias, f"schedules{of_shard}", LONGEST_PAUSE)
        self._parts.append(ScheduleLoop(schedules, declarer, watchdog=watchdog, fleet_size=fleet_size))
        self.databases += [part.database for part in self._parts]
        self._watchdog = watchdog

    def add(self) -> None:
        """Add them to the loops that are about to start."""
        if self._watchdog is not None:
            self._loops.add(self._watchdog.database, partial(self._sweep, self._watchdog))
        for part in self._parts:
            self._loops.add(part.database, part.run_once)

    def _sweep(self, watchdog: Watchdog) -> float:
        swept = watchdog.take_turn()
        if swept is not None:
            self._swept(swept)
        return watchdog.pause_after(swept, self._fleet_size())
