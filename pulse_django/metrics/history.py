"""The last hours of the fleet, from the recorded minutes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse_django.models import Minute
from pulse_django.queue.database.sql_functions import StatementTimestamp, aware
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import Histogram, VitalSign

from .vital_signs import HEARTBEATS

Signs = Mapping[str, Any]
Pick = Callable[[Signs], float]

SPAN = timedelta(hours=3)
POINTS = 60  # of a line; more would be closer than pixels
RECENT = timedelta(minutes=7)  # maximum age of the start of a recent minute, which is written after its end
# An older minute does not count as the present state.
FRESH = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    now: datetime | None  # by the server's clock; None without minutes
    minutes: Sequence[tuple[datetime, Signs]]  # the oldest first

    @property
    def latest(self) -> Signs | None:
        """Return the signs of the latest minute, if it is fresh."""
        return self.minutes[-1][1] if self.minutes and self._age(self.minutes[-1][0]) <= FRESH else None

    @property
    def conditions(self) -> dict[str, int] | None:
        """Return the conditions of the latest minute with their numbers, or None if they were not checked."""
        found = self._said("conditions")
        return numbers(found) if isinstance(found, dict) else None

    def sampled(self, queue: str) -> int:
        """Return the last number of due jobs of a queue."""
        return due_in({"queues": self._said("queues")}, queue)

    def _said(self, key: str) -> Any:
        """Return the latest value of a key. The watchdog may not have added it to the latest minute yet."""
        fresh = (signs for minute, signs in reversed(self.minutes) if self._age(minute) <= FRESH)
        return next((signs[key] for signs in fresh if key in signs), None)

    def line(self, pick: Callable[[Signs], float | None]) -> list[float | None]:
        """Return the points of a line, each the mean of a few minutes. None: no data."""
        length = SPAN / POINTS
        found: list[list[float]] = [[] for _ in range(POINTS)]
        for minute, signs in self.minutes:
            place = int((SPAN - self._age(minute)) / length)
            if 0 <= place < POINTS and (number := pick(signs)) is not None:
                found[place].append(number)
        return [sum(values) / len(values) if values else None for values in found]

    def rate(self, pick: Pick) -> float | None:
        """Return the recent mean per minute."""
        recent = [pick(signs) for minute, signs in self.minutes if self._age(minute) <= RECENT]
        return sum(recent) / len(recent) if recent else None

    def total(self, pick: Pick, within: timedelta = SPAN) -> int | None:
        """Return the total, or None if no minute was recorded."""
        found = [pick(signs) for minute, signs in self.minutes if self._age(minute) <= within]
        return round(sum(found)) if found else None

    def _age(self, minute: datetime) -> timedelta:
        return self.now - minute if self.now is not None else SPAN

    def histogram(self, sign: VitalSign, within: timedelta = SPAN) -> Histogram:
        """Return the durations of a sign, for all queues or tasks."""
        recent = [signs for minute, signs in self.minutes if self._age(minute) <= within]
        found = [value for signs in recent for _, value in counters.leaves(signs, sign)]
        return Histogram.merged(one.get("buckets", {}) for one in found)

    def success_of_beats(self, within: timedelta) -> float | None:
        """Return the share of successful heartbeats, or None without heartbeats."""
        answered, failed = (self.total(counted(HEARTBEATS, result=one), within) or 0 for one in ("answered", "failed"))
        return answered / (answered + failed) if answered + failed else None


NOTHING = History(now=None, minutes=())


def read(alias: str, within: timedelta = SPAN) -> History:
    """Read the last hours, with one query."""
    rows = (
        Minute.objects.using(alias)
        .filter(minute__gt=StatementTimestamp() - within, minute__lte=StatementTimestamp())
        .order_by("minute")
        .annotate(now=StatementTimestamp())
        .values_list("now", "minute", "signs")
    )
    found = list(rows)
    minutes = [(aware(minute), signs if isinstance(signs, dict) else {}) for _, minute, signs in found]
    return History(now=aware(found[0][0]) if found else None, minutes=minutes)


def due_in(signs: Signs, queue: str) -> int:
    """Return the number of due jobs of a queue in a minute."""
    return _first_number(signs.get("queues"), queue) or 0


def running_of(limit: str) -> Callable[[Signs], float | None]:
    """Pick the number of running jobs of a limit in a minute, or None if it was not recorded."""
    return lambda signs: _first_number(signs.get("limits"), limit)


def _first_number(by_name: Any, name: str) -> int | None:
    found = by_name.get(name) if isinstance(by_name, dict) else None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], int) else None


def numbers(found: Any) -> dict[str, int]:
    """Return the numbers by name. Other values may be from another release, or written by hand."""
    return {name: count for name, count in found.items() if isinstance(count, int)} if isinstance(found, dict) else {}


def counted(sign: VitalSign, **labels: str) -> Pick:
    """Pick the count of a sign with these labels."""
    return lambda signs: counters.total(signs, sign, **labels)
