"""Geometry of charts of a task or queue. A template draws them as SVG, without JavaScript.

Each point has its numbers as a title, which browsers show on hover.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.utils import timezone
from django.utils.formats import date_format
from django.utils.translation import gettext

from pulse_django.metrics.spans import Course
from pulse_django.queue.words.counters import Durations, TrafficCounts
from pulse_django.queue.words.display import in_words

from .board.sparkline import path_of

WIDTH, HEIGHT = 720, 110
LEFT, BOTTOM, TOP = 56, 18, 6  # for the scale, the times and the highest point
PLOT_WIDTH, PLOT_HEIGHT = WIDTH - LEFT, HEIGHT - BOTTOM - TOP
BASE = TOP + PLOT_HEIGHT
TICKS = 6
SHARES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
DRAWN = ("p50", "p95")  # one line for each
GAP = 0.15  # between two bars, as a share of the width of a point


class Bar(NamedTuple):
    kind: str  # a class of the style sheet
    x: float
    y: float
    width: float
    height: float


class ChartLine(NamedTuple):
    kind: str
    path: str


class Hover(NamedTuple):
    """The column of a point, and its text."""

    x: float
    width: float
    says: str


class Tick(NamedTuple):
    x: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    title: str
    summary: str  # for screen readers
    highest: str
    legend: Sequence[tuple[str, str]]  # the class and its label
    hovers: Sequence[Hover]
    ticks: Sequence[Tick]
    marks: Sequence[Hover]  # releases
    bars: Sequence[Bar] = ()
    lines: Sequence[ChartLine] = ()
    width: int = WIDTH
    height: int = HEIGHT
    top: int = TOP
    base: int = BASE
    left: int = LEFT
    plot_height: int = PLOT_HEIGHT


def charts_of(course: Course) -> list[Chart]:
    """Draw the number of runs, their durations and their waiting times. Return [] if nothing was recorded."""
    if not course.points:
        return []
    return [
        _runs(course),
        _times(course, gettext("Run time"), lambda one: one.ran),
        _times(course, gettext("Waiting time, from due to claimed"), lambda one: one.waited),
    ]


def took_in_words(seconds: float | None) -> str:
    """Return a duration as text, with milliseconds below a second."""
    if seconds is None:
        return "–"
    return f"{seconds * 1000:.0f}ms" if seconds < 1 else in_words(seconds)


def _runs(course: Course) -> Chart:
    highest = max(one.runs for one in course.points) or 1
    width = PLOT_WIDTH / len(course.points)
    bars = []
    for place, one in enumerate(course.points):
        base = float(BASE)
        for kind, number in (("good", one.succeeded), ("bad", one.failed)):
            height = number / highest * PLOT_HEIGHT
            if number:
                base -= height
                x = LEFT + place * width
                bars.append(Bar(kind, _r(x), _r(base), _r(width * (1 - GAP)), _r(height)))
    total = course.total
    return Chart(
        title=gettext("Runs"),
        summary=gettext("%(succeeded)d runs succeeded and %(failed)d failed.")
        % {"succeeded": total.succeeded, "failed": total.failed},
        highest=str(highest),
        legend=[("good", gettext("succeeded")), ("bad", gettext("failed"))],
        bars=bars,
        **_around(course, _runs_in_words),
    )


def _times(course: Course, title: str, pick: Callable[[TrafficCounts], Durations]) -> Chart:
    histograms = [pick(one).histogram for one in course.points]
    values = {kind: [one.quantile(SHARES[kind]) for one in histograms] for kind in DRAWN}
    highest = max((value for line in values.values() for value in line if value is not None), default=0.0) or 1.0

    def says(one: TrafficCounts) -> str:
        return gettext("p50 %(p50)s, p95 %(p95)s, p99 %(p99)s") % quantiles_of(pick(one))

    return Chart(
        title=title,
        summary=says(course.total),
        highest=took_in_words(highest),
        legend=[(kind, kind) for kind in DRAWN],
        lines=[ChartLine(kind=kind, path=_path(line, highest)) for kind, line in values.items()],
        **_around(course, says),
    )


def quantiles_of(took: Durations) -> dict[str, str]:
    """Return the quantiles that pages show, as text by name."""
    histogram = took.histogram
    return {name: took_in_words(histogram.quantile(share)) for name, share in SHARES.items()}


def _runs_in_words(one: TrafficCounts) -> str:
    return gettext("%(succeeded)d succeeded, %(failed)d failed, %(died)d dead-lettered, %(enqueued)d enqueued") % {
        "succeeded": one.succeeded, "failed": one.failed, "died": one.died, "enqueued": one.enqueued,
    }  # fmt: skip


def _path(values: Sequence[float | None], highest: float) -> str:
    """Draw a line from left to right. None is a gap, and a single point is a short stroke."""
    width = PLOT_WIDTH / len(values)
    points = [
        (LEFT + (place + 0.5) * width, None if value is None else BASE - value / highest * PLOT_HEIGHT)
        for place, value in enumerate(values)
    ]
    return path_of(points, f"h{width / 4:.1f}")


def _around(course: Course, says: Callable[[TrafficCounts], str]) -> dict[str, Any]:
    """Return the hovers, the ticks and the marks of a chart."""
    step, width = max(1, len(course.begins) // TICKS), PLOT_WIDTH / len(course.points)
    form = "MONTH_DAY_FORMAT" if course.window.span > timedelta(days=2) else "H:i"
    said = gettext("Release %(version)s, %(at)s")
    points = enumerate(zip(course.begins, course.points, strict=True))
    return {
        "hovers": [
            Hover(_r(LEFT + place * width), _r(width), f"{_at(begin)}: {says(one)}") for place, (begin, one) in points
        ],
        "ticks": [
            Tick(_r(LEFT + place * width), date_format(timezone.localtime(course.begins[place]), form))
            for place in range(0, len(course.begins), step)
        ],
        "marks": [
            Hover(_r(LEFT + mark.place * PLOT_WIDTH), 1, said % {"version": mark.version, "at": _at(mark.at)})
            for mark in course.marks
        ],
    }


def _at(instant: datetime) -> str:
    return date_format(timezone.localtime(instant), "SHORT_DATETIME_FORMAT")


def _r(number: float) -> float:
    return round(number, 1)
