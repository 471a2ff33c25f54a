"""The last hours of the fleet, from the minutes that workers wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pulse_django.models import Minute
from pulse_django.queue.database.sql_functions import StatementTimestamp
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import Histogram, VitalSign

from .vital_signs import HEARTBEATS

Signs = Mapping[str, Any]
Pick = Callable[[Signs], float]

SPAN = timedelta(hours=3)
POINTS = 60  # of a line; more would be closer together than pixels
RECENT = timedelta(minutes=7)  # since a minute began for it to count as "of late": the last is written when it is over
# Beyond it what the latest minute says of the present is too old to be shown as such.
FRESH = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    now: datetime | None  # by the server's clock; None: there are no minutes
    minutes: Sequence[tuple[datetime, Signs]]  # the oldest first

    @property
    def latest(self) -> Signs | None:
        """What the latest minute says, if it is fresh."""
        return self.minutes[-1][1] if self.minutes and self._age(self.minutes[-1][0]) <= FRESH else None

    @property
    def conditions(self) -> dict[str, int] | None:
        """Which conditions were found in the latest minute, and how often; None: they were not asked."""
        found = self._said("conditions")
        return numbers(found) if isinstance(found, dict) else None

    def sampled(self, queue: str) -> int:
        """Return how many jobs were due in a queue when they were last counted."""
        return due_in({"queues": self._said("queues")}, queue)

    def _said(self, key: str) -> Any:
        """The latest minute may be so fresh that its writer is still asking."""
        fresh = (signs for minute, signs in reversed(self.minutes) if self._age(minute) <= FRESH)
        return next((signs[key] for signs in fresh if key in signs), None)

    def line(self, pick: Callable[[Signs], float | None]) -> list[float | None]:
        """Return one number a minute, as means over a few minutes each; None where no minute was written or picked."""
        length = SPAN / POINTS
        found: list[list[float]] = [[] for _ in range(POINTS)]
        for minute, signs in self.minutes:
            place = int((SPAN - self._age(minute)) / length)
            if 0 <= place < POINTS and (number := pick(signs)) is not None:
                found[place].append(number)
        return [sum(values) / len(values) if values else None for values in found]

    def rate(self, pick: Pick) -> float | None:
        """Return how many a minute, of late."""
        recent = [pick(signs) for minute, signs in self.minutes if self._age(minute) <= RECENT]
        return sum(recent) / len(recent) if recent else None

    def total(self, pick: Pick, within: timedelta = SPAN) -> int | None:
        """Return how many there were; None: no minute was written."""
        found = [pick(signs) for minute, signs in self.minutes if self._age(minute) <= within]
        return round(sum(found)) if found else None

    def _age(self, minute: datetime) -> timedelta:
        return self.now - minute if self.now is not None else SPAN

    def histogram(self, sign: VitalSign, within: timedelta = SPAN) -> Histogram:
        """Return how long something took, of all queues or tasks."""
        recent = [signs for minute, signs in self.minutes if self._age(minute) <= within]
        found = [value for signs in recent for _, value in counters.leaves(signs, sign)]
        return Histogram.merged(one.get("buckets", {}) for one in found)

    def success_of_beats(self, within: timedelta) -> float | None:
        """Return the share of heartbeats that were answered; None: there were none."""
        answered, failed = (self.total(counted(HEARTBEATS, result=one), within) or 0 for one in ("answered", "failed"))
        return answered / (answered + failed) if answered + failed else None


NOTHING = History(now=None, minutes=())


def read(alias: str, within: timedelta = SPAN) -> History:
    """Read the last hours, or less: one query."""
    rows = (
        Minute.objects.using(alias)
        .filter(minute__gt=StatementTimestamp() - within, minute__lte=StatementTimestamp())
        .order_by("minute")
        .annotate(now=StatementTimestamp())
        .values_list("now", "minute", "signs")
    )
    found = list(rows)
    minutes = [(minute, signs if isinstance(signs, dict) else {}) for _, minute, signs in found]
    return History(now=found[0][0] if found else None, minutes=minutes)


def due_in(signs: Signs, queue: str) -> int:
    """Return how many jobs a minute found due in a queue."""
    return _first_number(signs.get("queues"), queue) or 0


def running_of(limit: str) -> Callable[[Signs], float | None]:
    """Pick how many jobs of a limit a minute found running; None: it was not asked."""
    return lambda signs: _first_number(signs.get("limits"), limit)


def _first_number(by_name: Any, name: str) -> int | None:
    found = by_name.get(name) if isinstance(by_name, dict) else None
    return found[0] if isinstance(found, list) and found and isinstance(found[0], int) else None


def numbers(found: Any) -> dict[str, int]:
    """Return what is a number by name. A minute may have been written by another release, or by hand."""
    return {name: count for name, count in found.items() if isinstance(count, int)} if isinstance(found, dict) else {}


def counted(sign: VitalSign, **labels: str) -> Pick:
    """Pick how many there were of a sign with these labels."""
    return lambda signs: counters.total(signs, sign, **labels)
