"""Durations as operators write them: 7d, 12h, 30m, 45s, 1d12h, or plain seconds."""

from __future__ import annotations

import re
from datetime import timedelta

from pulse_django.words.limits import MAX_DELAY

_SECONDS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_NUMBER = r"(\d+(?:\.\d+)?)"
# A number without a unit stands alone: in 1h30 it would be taken for minutes by some, and for seconds by others.
_WRITTEN = re.compile("".join(f"(?:{_NUMBER}{unit})?" for unit in _SECONDS), re.ASCII)
_PLAIN = re.compile(_NUMBER, re.ASCII)


def parse_duration(text: str) -> timedelta:
    """Return the duration, or raise ValueError with what would have been understood."""
    written = text.strip().lower()
    found = _WRITTEN.fullmatch(f"{written}s" if _PLAIN.fullmatch(written) else written)
    if found is None or not any(found.groups()):
        raise ValueError(f"{text!r} is not a duration: use 7d, 12h, 30m, 45s, 1d12h or a number of seconds")
    seconds = sum(
        float(number) * size for number, size in zip(found.groups(), _SECONDS.values(), strict=True) if number
    )
    if seconds > MAX_DELAY.total_seconds():
        raise ValueError(f"{text!r} is longer than {MAX_DELAY.days} days")
    return timedelta(seconds=seconds)
