"""Fires the ticks of schedules, and stores the schedules and limits that the code of this worker declares.

Every watchdog has this loop. It sleeps until the next instant, by the server's clock, and for a second at most. While
there are neither schedules nor limits it sends nothing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

from pulse_django import conf
from pulse_django.limits.keys import declared_limits
from pulse_django.models import Limiter, Schedule
from pulse_django.queue.capability import Capability, KeeperLoop, LoopFacts, WorkerDatabase
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of
from pulse_django.queue.declarations import Declarer, scope_of_code
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.run.registry import registry
from pulse_django.safe_logging import SafeLogger

from .conditions import CONDITIONS
from .declarations import declared_in
from .definitions import Definition
from .tick import FORGET_LIMIT, IN_TIME, forget_ticks, look
from .tick_threads import TickThreads
from .ticking import Ticker
from .verbs import clock

T = TypeVar("T")
logger = SafeLogger("pulse_django.schedules")

LONGEST_PAUSE = 1.0  # seconds, while there are schedules: another process may have created one that is due sooner
IDLE_PAUSE = 1.0  # seconds until it checks again whether this process has any
LOST_RACE = 0.2  # seconds until it tries again after another watchdog took the due schedules
BETWEEN_DECLARATIONS = BETWEEN_CLEANUPS = 60.0  # seconds
KEEP_TICKS = timedelta(days=30)
# The number of loops in a fleet that wake up for each tick. The others wake up at random, in total as often as one.
PUNCTUAL = 8


class ScheduleLoop(KeeperLoop):
    purpose, longest_pause = "schedules", LONGEST_PAUSE

    def __init__(self, database: WorkerDatabase, facts: LoopFacts) -> None:
        super().__init__(database, facts)
        self.threads = TickThreads(database.alias, f"{database.purpose} alone")
        self._ticker = Ticker(database.alias, self.threads)
        self._definitions: Sequence[Definition] | None = None
        self._limits: Mapping[str, Mapping[str, Any]] | None = {}  # None: they cannot be read, and do not change
        self._booted_at: datetime | None = None
        self._declare_at = self._forget_at = 0.0

    def run_once(self) -> float:
        """Store declarations and fire due schedules. Return how long to wait."""
        if self._definitions is None:
            registry.discover()
            self._limits = _limits_of_code() if self.facts.declarer else {}
            self._definitions = declared_in(self.database.alias) if self.facts.declarer else []
        with_work = self.facts.with_work()
        has_schedules = self._definitions or "schedules" in with_work
        has_limits = self._limits or (self._limits is not None and "limits" in with_work)
        if self.facts.declarer and (has_schedules or has_limits) and time.monotonic() >= self._declare_at:
            self._declare(self._definitions if has_schedules else None, self._limits if has_limits else None)
        if not (self.facts.watches and has_schedules):
            return IDLE_PAUSE
        if time.monotonic() >= self._forget_at:
            self._forget_at = time.monotonic() + BETWEEN_CLEANUPS
            forgotten = self._beside("Old ticks cannot be deleted", forget_ticks, self.database.alias, KEEP_TICKS)
            if forgotten == FORGET_LIMIT:
                self._forget_at = 0.0
        return self._fire()

    def _declare(
        self, definitions: Sequence[Definition] | None, limits: Mapping[str, Mapping[str, Any]] | None
    ) -> None:
        alias, silence = self.database.alias, conf.current().worker_silence
        if self._booted_at is None:
            self._booted_at = self.database.call(clock, alias)
        declarer = Declarer(scope_of_code(), self.facts.declarer, self._booted_at)
        self._declare_at = time.monotonic() + BETWEEN_DECLARATIONS
        if definitions is not None:
            schedules = Schedule.objects.db_manager(alias)
            self._beside("Schedules cannot be declared", schedules.declare, declarer, definitions, silence=silence)
        if limits is not None:
            limiters = Limiter.objects.db_manager(alias)
            self._beside("Limits cannot be declared", limiters.declare, declarer, limits, silence=silence)

    def _beside(self, failure: str, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T | None:
        """Call a verb, and log its failure, which must not keep schedules from firing."""
        try:
            return self.database.call(verb, *args, **kwargs)
        except Exception as error:
            if fault_of(error) is DatabaseFault.CUT_OFF:
                raise
            logger.error("%s: %s", failure, error_in_one_line(error))
            return None

    def _fire(self) -> float:
        alias = self.database.alias
        self.threads.enforce()
        seen = self.database.call(look, alias, self._ticker.not_now())
        if seen.is_due:
            has_late = seen.due_in is not None and seen.due_in < -IN_TIME.total_seconds()
            ticked = self.database.call(self._ticker.step, has_late=has_late)
            if ticked.has_more:
                return 0.0
            if ticked.schedules == 0:
                return LOST_RACE
            seen = self.database.call(look, alias, self._ticker.not_now())
        return self._pause(seen.due_in)

    def _pause(self, due_in: float | None) -> float:
        """Return how long to sleep: until the next tick, but in a large fleet only for some of its workers."""
        until_next = LONGEST_PAUSE if due_in is None else min(LONGEST_PAUSE, max(0.0, due_in))
        share = PUNCTUAL / max(PUNCTUAL, self.facts.fleet_size())
        if random.random() < share:  # noqa: S311 - no secret
            return until_next
        return max(until_next, LONGEST_PAUSE / share * random.uniform(0.5, 1.5))  # noqa: S311 - no secret


def _limits_of_code() -> Mapping[str, Mapping[str, Any]] | None:
    try:
        return declared_limits()
    except Exception as error:  # two tasks declare one limit differently; the system checks report it
        logger.error("Limits cannot be declared: %s", error_in_one_line(error))
        return None


CAPABILITY = Capability(
    name="schedules",
    exists="EXISTS (SELECT 1 FROM pulse_django_schedule)",
    conditions=CONDITIONS,
    loops=(ScheduleLoop,),
)
