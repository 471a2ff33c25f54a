"""What each task and queue did is written once for each span, and added up to longer ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from pulse_django.metrics import traffic
from pulse_django.metrics.traffic import DAY, MINUTE, TEN_MINUTES, TWO_HOURS
from pulse_django.models import Minute, Release, Traffic, Worker
from pulse_django.queue.database.releases import KEPT as RELEASES_KEPT
from pulse_django.queue.database.releases import forget, note_release
from pulse_django.queue.words.counters import OTHER, TrafficCounts, TrafficKind, capped
from pulse_django.queue.words.states import Status
from tests.factories import AttemptFactory, WorkerFactory, make_job, now
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

MAIL, SEND = (TrafficKind.QUEUE, "mail"), (TrafficKind.TASK, "shop.send")


@pytest.fixture
def minute() -> datetime:
    """One that is over."""
    [(begin,)] = sql("SELECT date_trunc('minute', clock_timestamp()) - interval '5 min'")
    found: datetime = begin
    return found


def row(kind: str, name: str, length: int = MINUTE) -> Traffic:
    return Traffic.objects.get(kind=kind, name=name, length=length)


def test_a_minute_is_counted_by_task_and_by_queue(minute: datetime) -> None:
    before, inside, after = (minute + timedelta(seconds=offset) for offset in (-1, 30, 61))
    kind = {"task": "shop.send", "queue": "mail"}
    make_job(created_at=minute - timedelta(hours=1))
    make_job(**kind, created_at=inside)
    done = {"created_at": before, "completed_by": "w", "completed_token": 1, "attempts": 1}
    make_job(Status.COMPLETED, **kind, **done, next_run_at=before, started_at=inside, finished_at=inside)
    # It began in the minute, and was over when the minute was written.
    make_job(Status.COMPLETED, **kind, **done, next_run_at=before, started_at=inside, finished_at=after)
    make_job(Status.RUNNING, **kind, created_at=before, started_at=inside)
    dead = make_job(Status.DEAD_LETTERED, **kind, created_at=before, finished_at=inside, attempts=1)
    AttemptFactory(job=dead, number=1, outcome="FAILED", due_at=before, started_at=before, finished_at=inside)
    Minute.objects.write(minute, is_latest=False)
    for one in (row("task", "shop.send"), row("queue", "mail")):
        assert (one.enqueued, one.started, one.succeeded, one.failed, one.died) == (1, 3, 1, 1, 1)
        assert (one.ran_seconds, sum(one.ran)) == (31.0, 2)
        assert (one.waited_seconds, sum(one.waited)) == (31.0, 2)
    assert not Traffic.objects.filter(name="default").exists(), "nothing happened to it"
    make_job(**kind, created_at=inside)
    assert not Minute.objects.write(minute, is_latest=False)
    assert row("queue", "mail").enqueued == 1, "it is written once"


def counts(seconds: float = 1.0, **numbers: int) -> TrafficCounts:
    found = TrafficCounts(**numbers)
    found.ran.measure(20, found.runs, seconds)
    return found


class TestLongerSpans:
    begin = datetime(2030, 1, 1, tzinfo=UTC)

    def write(self, minutes: int, **numbers: int) -> None:
        for offset in range(minutes):
            traffic.write("default", self.begin + timedelta(minutes=offset), {SEND: counts(**numbers)})

    def test_ten_minutes_are_added_up_when_the_tenth_is_over(self) -> None:
        self.write(9, succeeded=2, failed=1)
        assert set(Traffic.objects.values_list("length", flat=True)) == {MINUTE}
        self.write(10, succeeded=2, failed=1)  # those that are there stay as they are
        ten = row(*SEND, TEN_MINUTES)
        assert (ten.began_at, ten.succeeded, ten.failed) == (self.begin, 20, 10)
        assert (ten.ran_seconds, ten.ran[20], len(ten.ran)) == (10.0, 30, 21)

    def test_a_day_is_made_of_two_hours_and_these_of_ten_minutes(self) -> None:
        for offset in range(0, DAY, TEN_MINUTES):
            traffic.write("default", self.begin + timedelta(minutes=offset + 9), {SEND: counts(succeeded=1)})
        spans = {length: Traffic.objects.filter(length=length) for length in (TEN_MINUTES, TWO_HOURS, DAY)}
        assert {length: len(found) for length, found in spans.items()} == {TEN_MINUTES: 144, TWO_HOURS: 12, DAY: 1}
        assert {one.succeeded for one in spans[TWO_HOURS]} == {12}
        assert spans[DAY][0].succeeded == 144

    def test_a_span_in_which_watchdogs_were_away_is_added_up_later(self) -> None:
        self.write(4, enqueued=1)
        traffic.write("default", self.begin + timedelta(minutes=47), {SEND: counts(enqueued=1)})
        assert [(one.began_at.minute, one.enqueued) for one in Traffic.objects.filter(length=TEN_MINUTES)] == [(0, 4)]
        traffic.write("default", self.begin + timedelta(minutes=59), {})
        assert [(one.began_at.minute, one.enqueued) for one in Traffic.objects.filter(length=TEN_MINUTES)] == [
            (0, 4),
            (40, 1),
        ]


def test_names_beyond_the_bound_are_added_up_as_others() -> None:
    many = {f"task {number}": TrafficCounts(succeeded=number) for number in range(10)}
    kept = capped(many, 4)
    assert {name: one.succeeded for name, one in kept.items()} == {"task 9": 9, "task 8": 8, "task 7": 7, OTHER: 21}
    assert capped(many, 10) == many


def test_spans_are_kept_as_long_as_pages_show_them() -> None:
    for length, kept in traffic.KEPT.items():
        for age in (kept - timedelta(minutes=1), kept + timedelta(minutes=1)):
            [(began_at,)] = sql("SELECT clock_timestamp() - %s", age)
            traffic._write("default", length, began_at, {MAIL: counts(enqueued=1)})
    assert traffic.forget("default") == len(traffic.KEPT)
    assert sorted(Traffic.objects.values_list("length", flat=True)) == sorted(traffic.KEPT)


class TestReleases:
    def test_a_release_is_noted_when_the_newest_worker_brings_it(self) -> None:
        WorkerFactory(versions={"project": "1.0"}, started_at=now(timedelta(hours=-2)))
        note_release("default")
        note_release("default")
        WorkerFactory(versions={"project": "1.1"}, started_at=now(timedelta(hours=-1)))
        note_release("default")
        WorkerFactory(versions={"project": "1.0"}, started_at=now(timedelta(minutes=-1)))  # it was rolled back
        note_release("default")
        assert list(Release.objects.order_by("id").values_list("version", flat=True)) == ["1.0", "1.1", "1.0"]

    def test_older_workers_that_outlive_a_new_release_bring_theirs_back_once(self) -> None:
        WorkerFactory(versions={"project": "1.0"}, started_at=now(timedelta(hours=-2)))
        note_release("default")
        tried = WorkerFactory(versions={"project": "1.1"}, started_at=now(timedelta(hours=-1)))
        note_release("default")
        Worker.objects.filter(pk=tried.pk).update(stopped_at=now())
        for _ in range(3):
            note_release("default")
        assert list(Release.objects.order_by("seen_at").values_list("version", flat=True)) == ["1.0", "1.1", "1.0"]
        assert Release.objects.get(seen_at__gt=now(timedelta(minutes=-1))).version == "1.0", "seen now, not an hour ago"

    def test_without_a_version_of_the_project_those_of_its_packages_count(self) -> None:
        WorkerFactory(versions=["what?"])
        note_release("default")
        assert not Release.objects.exists()
        WorkerFactory(versions={"django": "6.1", "pulse_django": "0.2"})
        note_release("default")
        assert Release.objects.get().version == "django 6.1, pulse_django 0.2"

    def test_old_ones_are_forgotten(self) -> None:
        Release.objects.create(version="1.0", seen_at=now(-RELEASES_KEPT - timedelta(hours=1)))
        Release.objects.create(version="1.1", seen_at=now())
        assert forget("default") == 1
        assert Release.objects.get().version == "1.1"
