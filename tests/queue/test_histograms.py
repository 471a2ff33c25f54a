"""Durations in buckets: what is asked of them afterwards is nearly what was put in."""

from __future__ import annotations

import json
import random

import pytest

from pulse_django.queue.words.counters import Histogram

FACTOR = 2**0.5  # between the bounds of two buckets


@pytest.mark.parametrize("share", [0.5, 0.9, 0.99, 1.0])
def test_a_quantile_is_right_to_within_a_bucket_and_never_too_low(share: float) -> None:
    rand = random.Random(7)
    took = sorted(rand.lognormvariate(-3, 1.5) for _ in range(5_000))
    histogram = Histogram()
    for seconds in took:
        histogram.add(seconds)
    exact = took[max(0, int(share * len(took)) - 1)]
    answer = histogram.quantile(share)
    assert answer is not None
    assert exact <= answer * 1.001
    assert answer <= max(exact, 0.001) * FACTOR * 1.001


def test_parts_add_up_to_the_whole_after_a_journey_through_json() -> None:
    one, other, whole = Histogram(), Histogram(), Histogram()
    for number in range(100):
        (one if number % 3 else other).add(number / 10)
        whole.add(number / 10)
    parts = [json.loads(json.dumps(part.to_json())) for part in (one, other)]
    assert Histogram.merged(parts) == whole


def test_nothing_has_no_quantile_and_no_time_is_the_first_bucket() -> None:
    assert Histogram().quantile(0.99) is None
    histogram = Histogram()
    for seconds in (0.0, -1.0, 0.0005):
        histogram.add(seconds)
    assert histogram.quantile(1.0) == 0.001
    assert len(histogram) == 3
