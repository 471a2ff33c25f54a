"""What pages read of tasks and queues: the right sums, from few rows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pulse_django.metrics import traffic
from pulse_django.metrics.spans import WINDOWS, read_course, read_totals
from pulse_django.models import Release
from pulse_django.queue.words.counters import TrafficCounts, TrafficKind
from tests.database import empty_tables
from tests.faults import each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

TASK, QUEUE = TrafficKind.TASK, TrafficKind.QUEUE
SEND = (TASK, "shop.send")


def server_now() -> datetime:
    [(now,)] = sql("SELECT clock_timestamp()")
    found: datetime = now
    return found


def counts(seconds: float = 0.5, runs: int = 2) -> TrafficCounts:
    found = TrafficCounts(enqueued=runs, started=runs, succeeded=runs - 1, failed=1)
    found.ran.measure(18, runs, seconds * runs)
    found.waited.measure(2, runs, 0.002 * runs)
    return found


def write_every(minutes: int, span: timedelta) -> datetime:
    """Write a minute every so often, from the beginning of a span to the last minute that is over."""
    last = server_now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    steps = int(span / timedelta(minutes=minutes))
    for step in range(steps, -1, -1):
        traffic.write("default", last - timedelta(minutes=minutes) * step, {SEND: counts()})
    return last


@each_of(("hour", 1, 56), ("day", 10, 23 * 60), ("weeks", 60, 13 * 1440))
def test_a_course_and_a_sum_have_all_of_a_window(*, key: Any, minutes: Any, span: Any) -> None:
    empty_tables()
    written = span // minutes + 1
    write_every(minutes, timedelta(minutes=span))
    # What is longer than a page shows is gone, and so is what longer spans hold.
    traffic.forget("default")
    window = WINDOWS[key]
    course = read_course("default", *SEND, window)
    assert len(course.points) == len(course.begins) == window.points
    assert (course.total.succeeded, course.total.failed) == (written, written)
    assert read_totals("default", TASK, window)["shop.send"].runs == 2 * written
    assert any(one.runs for one in course.points[-3:])  # a minute may have begun since they were written
    assert read_course("default", QUEUE, "shop.send", window).total.runs == 0


def test_a_window_leaves_out_what_is_older() -> None:
    last = server_now().replace(second=0, microsecond=0) - timedelta(minutes=1)
    for minutes in (75, 61, 57, 1):
        traffic.write("default", last - timedelta(minutes=minutes), {SEND: counts()})
    assert read_course("default", *SEND, WINDOWS["hour"]).total.runs == 4
    assert read_totals("default", TASK, WINDOWS["day"])["shop.send"].runs == 8


def test_a_course_marks_releases() -> None:
    write_every(10, timedelta(hours=1))
    for version, ago in (("1.0", timedelta(hours=30)), ("1.1", timedelta(hours=12)), ("1.2", timedelta(hours=-1))):
        Release.objects.create(version=version, seen_at=server_now() - ago)
    [mark] = read_course("default", *SEND, WINDOWS["day"]).marks
    assert (mark.version, round(mark.place, 2)) == ("1.1", 0.5)


def test_quantiles_are_those_of_all_runs() -> None:
    last = write_every(1, timedelta(minutes=5))
    slow = TrafficCounts(succeeded=1)
    slow.ran.measure(30, 1, 30.0)
    traffic.write("default", last - timedelta(minutes=20), {SEND: slow})
    total = read_course("default", *SEND, WINDOWS["hour"]).total
    assert total.ran.histogram.quantile(0.5) == pytest.approx(0.512)
    assert total.ran.histogram.quantile(1.0) == pytest.approx(32.768)
    assert total.ran.seconds / sum(total.ran.runs_by_bucket) == pytest.approx(36 / 13)


def test_a_course_takes_three_queries_and_a_sum_two() -> None:
    write_every(10, timedelta(hours=3))
    for ask, most in (
        (lambda: read_course("default", *SEND, WINDOWS["day"]), 3),
        (lambda: read_totals("default", TASK, WINDOWS["weeks"]), 2),
    ):
        with CaptureQueriesContext(connection) as asked:
            ask()
        assert len(asked) == most
