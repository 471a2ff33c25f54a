"""A year, a month, a day or an hour in an address: ``2026``, ``2026-11``, ``2026-11-03``, ``2026-11-03T14``.

It begins in the current time zone. A day with a clock change has 23 or 25 hours.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from django.utils import timezone
from django.utils.dateparse import parse_datetime
from django.utils.formats import date_format
from django.utils.text import capfirst

_TEXT = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:T(\d\d))?)?)?", re.ASCII)
_YEARS = range(1970, 3000)  # no job is older or newer, and Python's calendar cannot overflow
_TITLES = ("", "YEAR_MONTH_FORMAT", "MONTH_DAY_FORMAT", "TIME_FORMAT")
MOST_YEARS = 50  # the latest: a row with a wrong date must not fill the page


@dataclass(frozen=True, slots=True)
class Period:
    parts: tuple[int, ...]  # year, month, day, hour: one to four of them

    @classmethod
    def named(cls, text: str) -> Self | None:
        """Return the period with this name, or None if the calendar does not have it."""
        found = _TEXT.fullmatch(text)
        if found is None:
            return None
        period = cls(tuple(int(part) for part in found.groups() if part is not None))
        try:
            return period if period._first.year in _YEARS else None
        except ValueError:
            return None  # the 31st of February

    @property
    def name(self) -> str:
        year, *rest = self.parts
        return f"{year:04}" + "".join(f"{sign}{part:02}" for sign, part in zip("--T", rest, strict=False))

    @property
    def title(self) -> str:
        if len(self.parts) == 1:
            return str(self.parts[0])
        return capfirst(date_format(self._first, _TITLES[len(self.parts) - 1]))

    @property
    def begin(self) -> datetime:
        return _instant(self._first)

    @property
    def end(self) -> datetime:
        """Return the begin of the next period. It equals ``begin`` for an hour that a clock change skips."""
        return _instant(self._following)

    @property
    def parent(self) -> Period | None:
        return Period(self.parts[:-1]) if len(self.parts) > 1 else None

    def within(self, oldest: datetime, newest: datetime) -> Iterator[Period]:
        """Yield the next smaller periods that overlap the time between two instants."""
        parts = (period for period in self._parts() if period.begin < period.end)
        return (period for period in parts if period.begin <= newest and oldest < period.end)

    def _parts(self) -> Iterator[Period]:
        numbers: tuple[range, ...] = (range(1, 13),)
        if len(self.parts) > 1:
            numbers += (range(1, monthrange(*self.parts[:2])[1] + 1), range(24), range(0))
        return (Period((*self.parts, number)) for number in numbers[len(self.parts) - 1])

    @property
    def _first(self) -> datetime:
        """Return the local time at which it begins."""
        return datetime(*(*self.parts, 1, 1)[: max(3, len(self.parts))])  # type: ignore[arg-type]  # noqa: DTZ001

    @property
    def _following(self) -> datetime:
        first = self._first
        match len(self.parts):
            case 1:
                return first.replace(year=first.year + 1)
            case 2:
                return (first + timedelta(days=31)).replace(day=1)
            case 3:
                return first + timedelta(days=1)
            case _:
                return first + timedelta(hours=1)


def years(oldest: datetime, newest: datetime) -> list[Period]:
    """Return the years between two instants, first to last."""
    zone = timezone.get_current_timezone()
    first, last = oldest.astimezone(zone).year, newest.astimezone(zone).year
    return [Period((year,)) for year in range(max(first, last - MOST_YEARS + 1), last + 1)]


def instant_of(text: str) -> datetime | None:
    """Parse the output of ``isoformat()`` from an address or a form. Return None if it is invalid."""
    try:
        instant = parse_datetime(text)
        if instant is None:
            return None
        return instant.astimezone(UTC) if timezone.is_aware(instant) else _instant(instant)
    except (ValueError, OverflowError):  # the 31st of February, or outside of Python's calendar
        return None


def _instant(wall: datetime) -> datetime:
    """Return a local time as UTC: Python compares two instants of one time zone by their local times."""
    return wall.replace(tzinfo=timezone.get_current_timezone()).astimezone(UTC)
