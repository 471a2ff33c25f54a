"""When a schedule is due: a cron expression in a time zone, or an interval; and the rules for late ticks.

Pure: the next time is a function of the timing and of a time. Arguments are aware, and results are in UTC. No two ticks
of a schedule have the same time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from itertools import islice, takewhile
from typing import TypedDict, Unpack
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pulse_django.exceptions import InvalidSchedule
from pulse_django.queue.words.bounds import MAX_DELAY
from pulse_django.queue.words.display import in_words
from pulse_django.queue.words.durations import WANTED, Seconds, as_timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SHORTEST_INTERVAL = timedelta(seconds=1)
SHORTEST_GRACE = timedelta(seconds=10)  # a tick is always a little late
MAX_EXPRESSION, MAX_ZONE = 200, 64
NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


class Missed(StrEnum):
    """How to treat ticks that were due while no watchdog was running."""

    ONCE = "once"  # the latest fires
    SKIP = "skip"  # none fires
    ALL = "all"  # each fires, the oldest first


class Overlap(StrEnum):
    """How to treat a tick while the last job of its schedule is not finished."""

    ALLOW = "allow"  # it fires
    SKIP = "skip"  # it does not fire
    WAIT = "wait"  # it fires when that job is finished; at most one tick waits
    CANCEL = "cancel"  # that job is asked to stop, and the tick fires


class Policy(TypedDict, total=False):
    """The common options of both timings."""

    missed: Missed | str
    grace: Seconds | None
    overlap: Overlap | str
    jitter: Seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """When a schedule is due, and which of its ticks fire. It is a ``Cron`` or an ``Every``."""

    # Durations are kept as a timedelta.
    missed: Missed | str = Missed.ONCE
    grace: Seconds | None = None  # a later tick does not fire; None: it fires at any time
    overlap: Overlap | str = Overlap.SKIP
    jitter: Seconds = timedelta()  # the time over which jobs of schedules that are due together are spread

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield the instants that are later than this one, in order."""
        raise NotImplementedError

    def in_words(self) -> str:
        """Describe it in English."""
        raise NotImplementedError

    def check(self) -> None:
        """Raise InvalidSchedule for invalid values of the common options."""
        for name in ("grace", "jitter"):
            object.__setattr__(self, name, as_timedelta(getattr(self, name)))
        for name, kind in (("missed", Missed), ("overlap", Overlap)):
            if getattr(self, name) not in list(kind):
                allowed = ", ".join(repr(one.value) for one in kind)
                raise InvalidSchedule(f"{name}: {getattr(self, name)!r} is not one of {allowed}")
        if self.grace is not None:
            _check_duration("grace", self.grace, SHORTEST_GRACE)
        _check_duration("jitter", self.jitter, timedelta())


@dataclass(frozen=True, slots=True)
class Cron(Timing):
    """A cron expression of five fields, or of six with seconds first, as Debian's cron reads it. ``"@daily"`` is one.

    When clocks are set forward, a skipped time runs right after the gap. When they are set back, a time that occurs
    twice runs once. An expression whose minute or hour begins with a star follows elapsed time, and runs as often as
    there are such minutes.
    """

    expression: str
    tz: str | None = None  # None: the project's TIME_ZONE

    def __post_init__(self) -> None:
        self.check()
        if isinstance(self.expression, str):
            object.__setattr__(self, "expression", NAMED.get(self.expression, self.expression))
        _check_expression(self.expression)
        zone_of(_zone(self.tz))
        if next_of(self, EPOCH) is None:
            raise InvalidSchedule(f"cron: {self.expression!r} is never due")

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield the instants that are later than this one, in order, until there is none within fifty years."""
        last = after
        # If it begins in an hour that occurs twice, the first may be in the past. In a gap, several clock times are the
        # same instant.
        for tick in CronSim(self.expression, after.astimezone(zone_of(_zone(self.tz)))):
            if (found := tick.astimezone(UTC)) > last:
                yield (last := found)

    def in_words(self) -> str:
        """Describe the expression in English."""
        return f"{CronSim(self.expression, EPOCH).explain()} ({_zone(self.tz)})"


@dataclass(frozen=True, slots=True, init=False)
class Every(Timing):
    """An interval: ``Every(minutes=5)``, or a duration.

    It counts from the beginning of 1970 and not from the last run: all hosts find the same instants.
    """

    interval: timedelta
    phase: timedelta = timedelta()  # an offset to these times

    def __init__(
        self,
        interval: Seconds | None = None,
        phase: Seconds = 0,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        **policy: Unpack[Policy],
    ) -> None:
        Timing.__init__(self, **policy)  # ``super()`` without arguments does not work with slots
        self.check()
        parts = {"weeks": weeks, "days": days, "hours": hours, "minutes": minutes, "seconds": seconds}
        if interval is not None and any(parts.values()):
            raise InvalidSchedule("every: give either an interval or weeks, days, hours, minutes and seconds")
        object.__setattr__(self, "interval", timedelta(**parts) if interval is None else as_timedelta(interval))
        object.__setattr__(self, "phase", as_timedelta(phase))
        _check_duration("every", self.interval, SHORTEST_INTERVAL, ". Write Every(minutes=5)")
        if not isinstance(self.phase, timedelta) or not timedelta() <= self.phase < self.interval:
            raise InvalidSchedule(f"phase: {phase!r} is not {WANTED} between 0 and the interval")

    def ticks(self, after: datetime) -> Iterator[datetime]:
        """Yield the instants that are later than this one, in order."""
        begin = EPOCH + self.phase
        last = begin + (after - begin) // self.interval * self.interval
        while True:
            yield (last := last + self.interval)

    def in_words(self) -> str:
        """Describe the interval in English."""
        seconds = self.interval.total_seconds()
        size, unit = next((one for one in _UNITS if seconds % one[0] == 0), (1, "second"))
        count = seconds / size
        return f"Every {unit}" if count == 1 else f"Every {count:,g} {unit}s"


def next_of(timing: Timing, after: datetime) -> datetime | None:
    """Return the first time after this one. None: there is none within fifty years."""
    return next(timing.ticks(after), None)


def upcoming(timing: Timing, after: datetime, count: int = 10, ends_at: datetime | None = None) -> list[datetime]:
    """Return the next times after this one and before the end."""
    found = timing.ticks(after) if ends_at is None else takewhile(lambda at: at < ends_at, timing.ticks(after))
    return list(islice(found, count))


@lru_cache(maxsize=256)
def zone_of(name: str) -> ZoneInfo:
    """Return the time zone of this name, or raise."""
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError) as error:  # missing, a folder, or a path to outside
        raise InvalidSchedule(f"tz: {name!r} is no time zone that is known here") from error


def _zone(name: str | None) -> str:
    return "UTC" if name is None else name


def _check_duration(name: str, value: object, least: timedelta, hint: str = "") -> None:
    if not isinstance(value, timedelta):
        raise InvalidSchedule(f"{name}: {value!r} is not {WANTED}")
    if not least <= value <= MAX_DELAY:
        span = f"not between {least} and {MAX_DELAY.days} days{hint}"
        raise InvalidSchedule(f"{name}: {in_words(value.total_seconds())} is {span}")


def _check_expression(expression: object) -> None:
    if not isinstance(expression, str):
        raise InvalidSchedule(f"cron: {expression!r} is not a string")
    if len(expression) > MAX_EXPRESSION:
        raise InvalidSchedule(f"cron: {len(expression)} characters are more than {MAX_EXPRESSION}")
    try:
        CronSim(expression, EPOCH)
    except CronSimError as error:
        raise InvalidSchedule(f"cron: {expression!r}: {error}") from None
