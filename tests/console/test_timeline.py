"""The drawing of a job's runs: what overlaps is seen, nothing lies outside, and colours are told in words as well."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, strategies

from pulse_django.console.jobs.timeline import LABELS, LANE, MOST_LANES, NARROWEST, WIDTH, Span, Timeline, draw
from tests.faults import each_of

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def span(number: int, begun: float, ended: float | None, outcome: str = "FAILED", **late: Any) -> Span:
    return Span(
        number=number,
        begun=at(begun),
        ended=None if ended is None else at(ended),
        outcome=outcome if ended is not None else "",
        worker="host",
        **late,
    )


def kinds(timeline: Timeline) -> list[str]:
    return [shape.kind for shape in timeline.shapes]


def test_a_job_that_never_ran_is_an_empty_drawing() -> None:
    timeline = draw(START, [], at(10))
    assert timeline.shapes == []
    assert timeline.height > LANE


@each_of(
    ("SUCCEEDED", "good"),
    ("FAILED", "bad"),
    ("WORKER_LOST", "bad"),
    ("RELEASED", "neutral"),
    ("SNOOZED", "neutral"),
)
def test_each_outcome_has_its_colour_and_its_words(*, outcome: Any, kind: Any) -> None:
    timeline = draw(START, [span(1, 2, 5, outcome)], at(100))
    assert kinds(timeline) == ["wait", kind]
    assert timeline.shapes[1].says == f"attempt 1: {outcome} after 3.0 s, by host"


def test_pauses_between_runs_are_drawn_to_scale() -> None:
    timeline = draw(START, [span(1, 0, 10), span(2, 30, 40, "SUCCEEDED")], at(40))
    first, pause, second = timeline.shapes
    assert (first.kind, pause.kind, second.kind) == ("bad", "wait", "good")
    assert pause.width == pytest.approx(2 * first.width, abs=0.4)
    assert pause.x == pytest.approx(first.x + first.width, abs=0.2)
    assert second.y == first.y + LANE
    assert pause.says == "waited 20.0 s"


def test_a_run_that_goes_on_reaches_to_now() -> None:
    timeline = draw(START, [span(1, 0, None)], at(50))
    [shape] = timeline.shapes
    assert shape.kind == "running"
    assert shape.x + shape.width == pytest.approx(WIDTH - NARROWEST, abs=0.5)


def test_a_zombie_beside_its_successor_is_told_of() -> None:
    late = {"late_at": at(35), "late_outcome": "SUCCEEDED"}
    timeline = draw(START, [span(1, 0, 10, "WORKER_LOST", **late), span(2, 20, 40, "SUCCEEDED")], at(40))
    assert timeline.has_overlap
    [zombie] = [shape for shape in timeline.shapes if shape.kind == "zombie"]
    assert zombie.says == "attempt 1 reported SUCCEEDED 25.0 s too late, while another run was active"
    successor = timeline.shapes[-1]
    assert zombie.x + zombie.width > successor.x, "one sees that they overlap"


def test_a_late_report_that_nobody_ran_beside_is_no_overlap() -> None:
    timeline = draw(START, [span(1, 0, 10, "WORKER_LOST", late_at=at(12), late_outcome="FAILED")], at(40))
    assert not timeline.has_overlap
    assert timeline.shapes[-1].says == "attempt 1 reported FAILED 2.0 s too late"


def test_of_very_many_runs_the_latest_are_drawn() -> None:
    spans = [span(number, number * 10, number * 10 + 1) for number in range(1, 200)]
    timeline = draw(START, spans, at(5_000))
    assert timeline.left_out == 199 - MOST_LANES
    assert timeline.labels[-1].says == "attempt 199"


INSTANTS = strategies.floats(min_value=-1e6, max_value=1e6, allow_nan=False)


@given(strategies.lists(strategies.tuples(INSTANTS, INSTANTS, strategies.none() | INSTANTS), max_size=8))
def test_nothing_lies_outside_whatever_the_clock_did(runs: list[tuple[float, float, float | None]]) -> None:
    """A clock that was set back leaves runs that end before they begin."""
    spans = [
        span(number, begun, ended, late_at=None if late is None else at(late), late_outcome="FAILED" if late else "")
        for number, (begun, ended, late) in enumerate(runs, 1)
    ]
    timeline = draw(START, spans, at(0))
    for shape in timeline.shapes:
        assert LABELS <= shape.x <= WIDTH
        assert shape.width >= NARROWEST
        assert shape.x + shape.width <= WIDTH + 0.2
        assert 0 <= shape.y < timeline.height
