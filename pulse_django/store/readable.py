"""What Python can read of what PostgreSQL can store: a row that cannot be read breaks every list that it is in."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from django.db.models import CheckConstraint, Q, Value
from django.db.models.functions import Greatest, Least
from django.db.models.lookups import GreaterThanOrEqual, LessThan

from pulse_django.words.limits import FIRST_YEAR, LAST_YEAR

# Python reads no infinity, no year BC and none of five digits. A year on each side is for time zones.
FIRST, LAST = datetime(FIRST_YEAR - 1, 1, 1, tzinfo=UTC), datetime(LAST_YEAR + 2, 1, 1, tzinfo=UTC)


def in_range(*names: str, lowest: Any = FIRST, highest: Any = LAST) -> Q:
    """Return that each of these columns is in this range, or NULL."""
    found = Q()
    for name in names:
        found &= Q(**{f"{name}__gte": lowest, f"{name}__lt": highest})
    return found


def least_and_greatest_in_range(*names: str) -> Q:
    """Return the same as a shorter expression, for a table whose rows are written often."""
    return Q(GreaterThanOrEqual(Least(*names), Value(FIRST))) & Q(LessThan(Greatest(*names), Value(LAST)))


def instants_of(what: str, *names: str) -> CheckConstraint:
    """Return the rule for the instants of a table."""
    return CheckConstraint(name=f"pulse_{what}_instants_can_be_read", condition=in_range(*names))
