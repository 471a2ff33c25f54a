"""Format durations and untrusted text for a terminal or a page.

Names and errors come from rows. ``inert`` escapes them, so that they cannot move the cursor, forge a line or reverse
the text direction.
"""

from __future__ import annotations

import math
import re
from typing import Any

from .bounds import UNLIMITED

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))

# Characters that a browser does not show, or that reverse the text direction: control characters except tabs and line
# ends, and the format characters of Unicode. Variation selectors are allowed: they follow a visible character.
_UNSEEN = (
    "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e"
    "\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e007f"
)
UNSEEN = re.compile(f"[{_UNSEEN}]")


def shown(value: object) -> str:
    """Return the beginning of a value's ``repr()``, or its type: the ``repr()`` of a very long number raises."""
    try:
        text = repr(value)
    except Exception:
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:60]}..."


def in_words(seconds: float) -> str:
    """Return a duration in its two largest units: 3d 4h, 2m 5s, 1.5s."""
    if seconds < 0:
        return f"-{in_words(-seconds)}"
    if seconds < 10:
        return f"{seconds:.1f}s"
    rest, said = int(seconds), []
    for size, unit in _UNITS:
        if rest >= size:
            said.append(f"{rest // size}{unit}")
            rest %= size
    if rest and len(said) < 2:
        said.append(f"{rest}s")
    return " ".join(said[:2]) or "0s"


def most_shown(max_attempts: int) -> int | str:
    return "∞" if max_attempts == UNLIMITED else max_attempts


def inert(text: str, most: int = 0) -> str:
    """Return ``text`` cut after ``most`` characters, with all characters escaped that a terminal obeys or hides."""
    kept = text[: most + 1] if most else text  # escaping makes no character shorter
    shown = "".join(char if char.isprintable() else escaped(char) for char in kept)
    return f"{shown[: most - 3]}..." if most and len(shown) > most else shown


def escaped(text: str) -> str:
    """Return ``text`` with each character spelt as a Python string spells it: ``\\u202e``."""
    return text.encode("unicode_escape").decode("ascii")


# How much of a job is done, from the progress that its handler reported.


def share_of(progress: Any) -> float | None:
    """Return how much of the work is done, from 0 to 1, if the handler reported both numbers."""
    if not isinstance(progress, dict):
        return None
    done, total = progress.get("done"), progress.get("total")
    if not all(isinstance(number, int | float) and not isinstance(number, bool) for number in (done, total)):
        return None
    try:
        share = float(done) / float(total)  # type: ignore[arg-type]  # numbers
    except (OverflowError, ZeroDivisionError):  # JSON has numbers that no float can hold
        return None
    return None if math.isnan(share) else min(max(share, 0.0), 1.0)


# Leave secrets out of reprs, which logs and errors show. Dataclasses have ``field(repr=False)``; named tuples use this.


def without(carrier: Any, *hidden: str) -> str:
    """Return the repr of a named tuple without these fields."""
    shown = ", ".join(f"{name}={getattr(carrier, name)!r}" for name in carrier._fields if name not in hidden)
    return f"{type(carrier).__name__}({shown})"
