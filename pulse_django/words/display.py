"""Durations and foreign text as people read them on a terminal or a page.

Names and errors come from rows. ``inert`` shows them so that none can move the cursor, forge a line or turn the text
around.
"""

from __future__ import annotations

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))


def in_words(seconds: float) -> str:
    """Say a duration in its two largest units: 3d 4h, 2m 5s, 1.5s."""
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


def inert(text: str, most: int = 0) -> str:
    """Return ``text`` with everything escaped that a terminal would obey or hide, cut after ``most`` characters."""
    meant = text[: most + 1] if most else text  # no character becomes shorter
    shown = "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in meant)
    return f"{shown[: most - 3]}..." if most and len(shown) > most else shown
