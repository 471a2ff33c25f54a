"""Durations as callers pass them: a ``timedelta``, or a number of seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import methodcaller
from typing import Any

Seconds = timedelta | float
WANTED = "a number of seconds or a timedelta"

# For stored durations, which are always a ``timedelta``.
seconds_of: Callable[[Seconds], float] = methodcaller("total_seconds")


def as_timedelta(given: Any) -> Any:
    """Return a number of seconds as a ``timedelta``, and anything else unchanged, for the caller to refuse."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return given
    try:
        return timedelta(seconds=given)
    except OverflowError:  # too long for any bounds
        return timedelta.max if given > 0 else timedelta.min
    except ValueError:  # not a number
        return given
