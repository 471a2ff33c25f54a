"""Durations as a caller gives them: a ``timedelta``, or a number of seconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from operator import methodcaller
from typing import Any

Seconds = timedelta | float
WANTED = "a number of seconds or a timedelta"

# Of a duration that is kept: there it is a ``timedelta``, whatever was given.
seconds_of: Callable[[Seconds], float] = methodcaller("total_seconds")


def as_timedelta(given: Any) -> Any:
    """Return a number of seconds as a ``timedelta``, and anything else as it is: its caller refuses it in its words."""
    if isinstance(given, bool) or not isinstance(given, int | float):
        return given
    try:
        return timedelta(seconds=given)
    except OverflowError:  # no bounds allow it, whatever they are
        return timedelta.max if given > 0 else timedelta.min
    except ValueError:  # not a number
        return given
