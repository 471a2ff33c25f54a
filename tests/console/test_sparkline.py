"""Lines in the height of a word."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, strategies

from pulse_django.console.board.sparkline import HEIGHT, WIDTH, draw, rate_in_words
from tests.faults import each_of

VALUES = strategies.lists(strategies.none() | strategies.floats(min_value=0, max_value=1e9), max_size=80)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


@given(VALUES)
def test_nothing_is_drawn_outside_and_every_value_is_drawn(values: list[float | None]) -> None:
    line = draw(values)
    drawn = points(line.path)
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in drawn)
    assert len({x for x, _ in drawn}) == sum(value is not None for value in values)


def test_a_gap_is_not_bridged() -> None:
    assert draw([1, 1, None, 1]).path.count("M") == 2


def test_higher_is_higher_and_a_common_scale_is_kept() -> None:
    low, high = (points(draw([value], highest=10).path)[0][1] for value in (1, 9))
    assert high < low
    assert draw([1], highest=10).path != draw([1]).path


@each_of((None, "–"), (0.0, "0"), (0.25, "0.2"), (9.96, "10.0"), (10.4, "10"), (12345.6, "12346"))
def test_rates_are_said_with_as_many_digits_as_matter(*, rate: Any, words: Any) -> None:
    assert rate_in_words(rate) == words
