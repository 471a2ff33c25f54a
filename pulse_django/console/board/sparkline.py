"""Geometry of sparklines, which show a few hours as a small line. A template draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

WIDTH = 120
HEIGHT = 24
RECENT = 4  # the latest value is one of the last three points
MARGIN = 1.5  # keeps the highest point of the line visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    path: str  # of an SVG; empty without data
    latest: str  # in words, as a rate
    highest: str
    width: int = WIDTH
    height: int = HEIGHT


def rate_in_words(rate: float | None) -> str:
    if rate is None:
        return "–"
    return f"{rate:.0f}" if rate >= 10 or rate == 0 else f"{rate:.1f}"


def draw(values: Sequence[float | None], *, highest: float | None = None) -> Sparkline:
    """Draw values from left to right. None is a gap. Pass the same ``highest`` to lines that are compared."""
    known = [value for value in values if value is not None]
    top = max([*known, highest or 0.0]) or 1.0
    return Sparkline(
        path=_path(values, top),
        latest=rate_in_words(next((value for value in values[:-RECENT:-1] if value is not None), None)),
        highest=rate_in_words(max(known, default=None)),
    )


def _path(values: Sequence[float | None], top: float) -> str:
    width = (WIDTH - 2 * MARGIN) / max(len(values) - 1, 1)
    inner = HEIGHT - 2 * MARGIN
    points = [
        (MARGIN + place * width, None if value is None else MARGIN + inner - value / top * inner)
        for place, value in enumerate(values)
    ]
    return path_of(points, "h0")  # a line of length zero shows a single minute


def path_of(points: Iterable[tuple[float, float | None]], alone: str) -> str:
    """Draw a line through these points. A point without a height is a gap. ``alone`` follows each first point."""
    steps, is_drawing = [], False
    for x, y in points:
        if y is not None:
            steps.append(f"L{x:.1f} {y:.1f}" if is_drawing else f"M{x:.1f} {y:.1f}{alone}")
        is_drawing = y is not None
    return "".join(steps)
