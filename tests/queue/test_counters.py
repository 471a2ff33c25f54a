"""Counts by label: added up, told apart, and bounded."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, strategies

from pulse_django.metrics.vital_signs import ALL, DEATH_TO_REQUEUE, JOBS_ENDED, JOBS_ENQUEUED, THE_EIGHT
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import Histogram, SignKind
from tests.faults import each_of

NUMBERS = strategies.integers(min_value=0, max_value=10**6)
TALLIES = strategies.dictionaries(
    strategies.sampled_from("abc"), strategies.dictionaries(strategies.sampled_from("xyz"), NUMBERS)
)


@given(TALLIES, TALLIES)
def test_adding_and_taking_away_are_opposites_and_change_neither(one: dict[str, Any], other: dict[str, Any]) -> None:
    before = repr((one, other))
    fresh = counters.since(counters.added(one, other), one)
    assert repr((one, other)) == before
    assert {(a, x): n for a, inner in fresh.items() for x, n in inner.items() if n} == {
        (a, x): n for a, inner in other.items() for x, n in inner.items() if n
    }


def test_names_beyond_the_bound_are_counted_as_others_and_known_ones_go_on() -> None:
    one = counters.added({}, {"a": 1, "b": 2, "c": 3, "d": 4}, most=2)
    assert one == {"a": 1, "b": 2, "(other)": 7}
    assert counters.added(one, {"a": 1, "e": 1}, most=2) == {"a": 2, "b": 2, "(other)": 8}


def test_totals_are_taken_of_the_labels_that_are_wanted() -> None:
    tally: counters.Counters = {}
    counters.count(tally, JOBS_ENDED, ("mail", "COMPLETED"), 3)
    counters.count(tally, JOBS_ENDED, ("mail", "CANCELLED"), 1)
    counters.count(tally, JOBS_ENDED, ("other", "COMPLETED"), 5)
    assert counters.total(tally, JOBS_ENDED) == 9
    assert counters.total(tally, JOBS_ENDED, queue="mail") == 4
    assert counters.total(tally, JOBS_ENDED, status="COMPLETED") == 8
    assert counters.total(tally, JOBS_ENQUEUED) == 0


@each_of(*ALL)
def test_every_sign_says_what_it_means_and_what_to_do(*, sign: Any) -> None:
    assert sign.means.endswith(".")
    assert sign.to_do.endswith(".")
    assert sign.name.endswith("_total") == (sign.kind is SignKind.COUNTER)
    assert sign.name.endswith("_seconds") == (sign.unit == "seconds")
    assert [one.name for one in ALL].count(sign.name) == 1
    assert len(THE_EIGHT) == 9, "heartbeats are two: their success and their delay"


ODD_COUNTS: list[Any] = [
    *(None, 5, "x", [], [1]),
    *({"mail": None}, {"mail": "x"}, {"mail": []}),
    *({"mail": {"COMPLETED": None}}, {"mail": {"COMPLETED": True}}, {"mail": {"COMPLETED": {"count": 1}}}),
]


@each_of(*ODD_COUNTS)
def test_what_another_release_wrote_in_another_shape_is_left_out(*, odd: Any) -> None:
    assert counters.total({JOBS_ENDED.name: odd}, JOBS_ENDED) == 0
    assert counters.total({JOBS_ENDED.name: odd}, JOBS_ENDED, queue="mail") == 0


ODD_HISTOGRAMS: list[Any] = [
    None,
    5,
    {},
    {"count": 1},
    {"count": 1, "sum": 1, "buckets": {"x": 1}},
    {"count": "1", "sum": 1, "buckets": {}},
]


@each_of(*ODD_HISTOGRAMS)
def test_so_is_a_histogram_that_is_none(*, odd: Any) -> None:
    assert list(counters.leaves({DEATH_TO_REQUEUE.name: odd}, DEATH_TO_REQUEUE)) == []


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
