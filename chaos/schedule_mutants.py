"""Bugs for the chaos of schedules to find: each breaks one rule of ticks, in the watchdogs of a run and nowhere else.

A watchdog imports this module as one of its task modules when ``CHAOS_MUTANT`` names a bug.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from pulse_django.run.registry import registry
from pulse_django.schedules import planning, tick, ticking
from pulse_django.schedules.declarations import check_call
from pulse_django.schedules.loop import ScheduleLoop

PAUSE = 0.3


def _replaced(name: str, *pairs: tuple[str, str]) -> None:
    statement: str = getattr(tick, name)
    for old, new in pairs:
        if old not in statement:
            raise SystemExit(f"{name} does not contain {old!r}: the mutant needs a new place")
        statement = statement.replace(old, new)
    setattr(tick, name, statement)


def tick_without_lock_and_key() -> None:
    """Lock no schedule, and take the tick of another watchdog for a new one."""
    _replaced("_DUE_TOGETHER", ("FOR NO KEY UPDATE OF schedule SKIP LOCKED", ""))
    _replaced(
        "_WRITE_TICKS_AND_KEYS",
        ("WHERE tick.outcome::text = 'WAITING' AND excluded.outcome::text <> 'WAITING'", ""),
        ("given.key, given.job_id", "given.key || given.job_id, given.job_id"),
    )


def tick_without_a_transaction() -> None:
    """Commit the ticks, then their jobs. The pause in between makes a kill there likely within a short run."""
    copy_with_ids = tick.copy_with_ids

    @contextmanager
    def separate(_alias: str) -> Iterator[None]:
        yield

    def copy_later(*args: Any, **options: Any) -> None:
        time.sleep(PAUSE)
        copy_with_ids(*args, **options)

    ticking.durable = separate  # type: ignore[attr-defined]
    tick.copy_with_ids = copy_later  # type: ignore[attr-defined]


def forget_missed_ticks() -> None:
    """Fire the latest tick that is due, and write no rows for those before it."""
    decide = planning.decide

    def decide_latest(*args: Any, **options: Any) -> Any:
        decided = decide(*args, **options)
        return replace(decided, ticks=decided.ticks[-1:])

    planning.decide = decide_latest


def backlog_in_one_transaction() -> None:
    """Write all ticks that are due in one transaction."""
    ticking.MOST_ROWS = ticking.LEAST_ROWS = 10**9
    ticking.LONGEST_PLANNING = 10.0**9


def late_schedules_first() -> None:
    """Serve schedules that are on time only while no other is late."""
    step = ticking.Ticker.step

    def latest(self: Any, *, until: Any = None, has_late: bool = True) -> Any:
        registry.discover()
        return self._late.step(until) if has_late else step(self, until=until, has_late=False)

    ticking.Ticker.step = latest  # type: ignore[method-assign]


def slow_schedules_with_the_others() -> None:
    """Call functions that make keys while all schedules that are due are locked."""
    _replaced("_DUE_TOGETHER", (tick._IS_ALONE, "false"))


def declare_or_nothing() -> None:
    """Fire nothing while a declaration is refused."""

    def declare(self: Any, _failure: str, verb: Any, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[-1], list):
            for definition in args[-1]:
                check_call(definition)
        return self.database.call(verb, *args, **options)

    ScheduleLoop._beside = declare  # type: ignore[method-assign]


def one_fails_all() -> None:
    """Raise the error of one schedule instead of deciding the others alone."""
    ticking._is_of_all = lambda _error: True


SCHEDULE_MUTANTS: dict[str, Callable[[], None]] = {
    "two watchdogs fire one tick": tick_without_lock_and_key,
    "a tick without a transaction": tick_without_a_transaction,
    "missed ticks without rows": forget_missed_ticks,
    "a backlog in one transaction": backlog_in_one_transaction,
    "late schedules are served before all others": late_schedules_first,
    "slow schedules are decided with the others": slow_schedules_with_the_others,
    "declares before it fires": declare_or_nothing,
    "one bad schedule fails its batch": one_fails_all,
}


if name := os.environ.get("CHAOS_MUTANT"):
    SCHEDULE_MUTANTS[name]()
