"""What is written of each minute, and that each is written once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from pulse_django.models import Job, Minute, Worker
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.states import TERMINAL, Status
from tests.database import empty_tables
from tests.factories import AttemptFactory, make_job, now, presence
from tests.faults import each_of
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")


@pytest.fixture
def minute() -> datetime:
    """One that is over."""
    [(begin,)] = sql("SELECT date_trunc('minute', clock_timestamp()) - interval '5 min'")
    found: datetime = begin
    return found


def test_what_happened_in_a_minute_is_counted_and_nothing_else(minute: datetime) -> None:
    before, inside, after = (minute + timedelta(seconds=offset) for offset in (-1, 30, 60))
    for instant in (before, inside, inside, after):
        make_job(queue="mail", created_at=instant)
        make_job(Status.COMPLETED, created_at=before, finished_at=instant, queue="mail")
    make_job(Status.DEAD_LETTERED, created_at=inside, finished_at=inside)
    make_job(Status.CANCELLED, created_at=before, finished_at=inside)
    expired = {"created_at": before, "expires_at": before, "cancel_requested_at": None}
    for instant in (before, inside, after):
        make_job(Status.CANCELLED, **expired, finished_at=instant)
    job = make_job(created_at=before)
    for number, instant in enumerate((before, inside, inside, after), 1):
        AttemptFactory(job=job, number=number, outcome="FAILED", finished_at=instant)
    AttemptFactory(job=job, number=5, finished_at=before, late_outcome="SUCCEEDED", late_at=inside)
    for number, seconds in ((6, 4), (7, 16)):
        seen = inside - timedelta(seconds=seconds)
        AttemptFactory(job=job, number=number, outcome="WORKER_LOST", finished_at=inside, last_seen_at=seen)
    assert Minute.objects.write(minute, is_latest=False)
    signs = Minute.objects.get().signs
    assert signs["jobs_enqueued_total"] == {"mail": 2, "default": 1}
    assert signs["jobs_ended_total"] == {"mail": {"COMPLETED": 2}, "default": {"DEAD_LETTERED": 1, "CANCELLED": 2}}
    assert signs["jobs_expired_total"] == {"default": 1}
    assert signs["runs_total"] == {"tests.add": {"FAILED": 2, "WORKER_LOST": 2}}
    assert signs["late_reports_total"] == {"SUCCEEDED": 1}
    took = signs["death_to_requeue_seconds"]
    assert (took["count"], took["sum"]) == (2, 20.0)
    histogram = Histogram.merged([took["buckets"]])
    assert 4 <= (histogram.quantile(0.5) or 0) < 6
    assert 16 <= (histogram.quantile(1.0) or 0) < 23
    assert signs["lease_expirations_total"] == signs["recovery_requeues_total"] == 2


def test_how_long_runs_waited_and_took_is_measured_by_queue_and_task(minute: datetime) -> None:
    due, begun = minute - timedelta(seconds=3), minute
    job = make_job(Status.RETRYING, task="tests.slow", queue="mail", created_at=minute - timedelta(seconds=10))
    AttemptFactory(job=job, number=1, due_at=due, started_at=begun, finished_at=minute + timedelta(seconds=7))
    AttemptFactory(job=job, number=2, started_at=begun, finished_at=minute + timedelta(seconds=30))
    Minute.objects.write(minute, is_latest=False)
    signs = Minute.objects.get().signs
    assert signs["lease_acquisition_seconds"] == {"mail": {"count": 1, "sum": 3.0, "buckets": {bucket(3): 1}}}
    assert signs["enqueue_to_start_seconds"] == {"mail": {"count": 1, "sum": 10.0, "buckets": {bucket(10): 1}}}
    slow = {"count": 2, "sum": 37.0, "buckets": {bucket(7): 1, bucket(30): 1}}
    assert signs["run_seconds"] == {"tests.slow": slow}


def bucket(seconds: float) -> str:
    histogram = Histogram()
    histogram.add(seconds)
    return next(iter(histogram.to_json()))


@each_of(0.0, 0.0005, 0.001, 0.0011, 0.5, 1.0, 1.024, 4.096, 3_600.0)
def test_the_server_and_we_choose_the_same_bucket(minute: datetime, *, seconds: Any) -> None:
    empty_tables()
    job = make_job()
    AttemptFactory(job=job, started_at=minute, finished_at=minute + timedelta(seconds=seconds), due_at=minute)
    Minute.objects.write(minute + timedelta(seconds=seconds) - timedelta(seconds=seconds % 60), is_latest=False)
    assert list(Minute.objects.get().signs["run_seconds"]["tests.add"]["buckets"]) == [bucket(seconds)]


def test_of_a_lost_run_it_is_told_whether_its_job_got_another(minute: datetime) -> None:
    for status, outcome in ((Status.DEAD_LETTERED, "WORKER_LOST"), (Status.RETRYING, "WORKER_LOST")):
        job = make_job(status, attempts=1, finished_at=minute if status in TERMINAL else None)
        AttemptFactory(job=job, number=1, outcome=outcome, finished_at=minute, last_seen_at=minute)
    killed = make_job(Status.RETRYING, attempts=1)  # its keeper saw it die: no lease ran out
    AttemptFactory(job=killed, number=1, outcome="WORKER_LOST", finished_at=minute)
    Minute.objects.write(minute, is_latest=False)
    signs = Minute.objects.get().signs
    assert (signs["lease_expirations_total"], signs["recovery_requeues_total"]) == (2, 2)


class TestTotals:
    def test_they_grow_from_minute_to_minute_and_stand_in_the_latest_alone(self, minute: datetime) -> None:
        for number in range(3):
            begin = minute - timedelta(minutes=3 - number)
            make_job(queue="mail", created_at=begin)
            Minute.objects.write(begin, is_latest=False)
        rows = list(Minute.objects.order_by("minute"))
        assert [row.totals and row.totals["jobs_enqueued_total"] for row in rows] == [None, None, {"mail": 3}]

    def test_what_workers_count_is_taken_since_the_minute_before(self, minute: datetime) -> None:
        tell(beats=10, refused={"heartbeat": 1}, database_errors=2, beat_delays={"4": 10})
        Minute.objects.write(minute - timedelta(minutes=4))
        tell(beats=16, refused={"heartbeat": 1, "settle": 3}, database_errors=2, beat_delays={"4": 15, "9": 1})
        Minute.objects.write(minute - timedelta(minutes=3))
        signs = Minute.objects.latest("minute").signs
        assert signs["heartbeats_total"] == {"answered": 6, "failed": 0}
        assert signs["fencing_rejections_total"] == {"heartbeat": 0, "settle": 3}
        assert signs["database_errors_total"] == 0
        assert signs["heartbeat_delay_seconds"]["buckets"] == {"4": 5, "9": 1}
        totals = Minute.objects.latest("minute").totals
        assert totals["heartbeats_total"] == {"answered": 16, "failed": 0}
        assert totals["fencing_rejections_total"] == {"heartbeat": 1, "settle": 3}
        tell(beats=20)
        Minute.objects.write(minute - timedelta(minutes=2), is_latest=False)
        Minute.objects.write(minute - timedelta(minutes=1))
        assert Minute.objects.latest("minute").totals["heartbeats_total"]["answered"] == 20, "after one caught up"
        tell(beats=4)
        tell("another", beats=7)
        Minute.objects.write(minute)
        assert Minute.objects.latest("minute").totals["heartbeats_total"]["answered"] == 31, "one began anew"

    def test_refusals_of_limits_are_counted_by_limit_and_reason(self, minute: datetime) -> None:
        tell(limit_refusals={"stripe": {"full": 2}})
        tell("another", limit_refusals={"stripe": {"full": 1, "rate": 4}})
        tell("of another release", limit_refusals=["what is this?"])
        Minute.objects.write(minute - timedelta(minutes=2))
        tell(limit_refusals={"stripe": {"full": 5}, "mail": {"closed": 1}})
        Minute.objects.write(minute)
        latest = Minute.objects.latest("minute")
        assert latest.signs["limit_refusals_total"] == {"stripe": {"full": 3}, "mail": {"closed": 1}}
        assert latest.totals["limit_refusals_total"] == {"stripe": {"full": 6, "rate": 4}, "mail": {"closed": 1}}

    def test_they_survive_that_minutes_are_forgotten_for_a_while(self, minute: datetime) -> None:
        make_job(queue="mail", created_at=minute - timedelta(minutes=9))
        Minute.objects.write(minute - timedelta(minutes=9))
        make_job(queue="mail", created_at=minute)
        Minute.objects.write(minute)
        assert Minute.objects.latest("minute").totals["jobs_enqueued_total"] == {"mail": 2}


def tell(name: str = "host-1", **vitals: object) -> None:
    Worker.objects.note(presence(name, vitals=vitals))


def test_minutes_in_the_future_keep_nobody_from_writing(minute: datetime) -> None:
    """The server's clock was set back."""
    Minute.objects.write(minute + timedelta(days=1))
    assert len(Minute.objects.unwritten()) == 10


def test_the_latest_also_tells_how_things_stand(minute: datetime) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(seconds=-90)))
    make_job(queue="mail", priority=5)
    make_job(queue="mail", next_run_at=now(timedelta(hours=1)))
    Minute.objects.write(minute)
    Minute.objects.note(minute, {"broken": {"task-unknown": 2}})
    signs = Minute.objects.get().signs
    assert signs["broken"] == {"task-unknown": 2}
    due, later, overdue = signs["queues"]["mail"]
    assert (due, later) == (2, 1)
    assert 90 <= overdue < 120


def test_whoever_comes_second_changes_nothing(minute: datetime) -> None:
    assert Minute.objects.write(minute)
    make_job(created_at=minute)
    assert not Minute.objects.write(minute)
    assert "jobs_enqueued_total" not in Minute.objects.get().signs


def test_the_last_ten_are_caught_up_and_none_is_written_twice(minute: datetime) -> None:
    missing = Minute.objects.unwritten()
    assert len(missing) == 10
    assert all(later - earlier == timedelta(minutes=1) for earlier, later in zip(missing, missing[1:], strict=False))  # noqa: RUF007
    assert 5 <= sql("SELECT EXTRACT(epoch FROM clock_timestamp() - %s)", missing[-1])[0][0] - 60 < 70
    Minute.objects.write(missing[-3])
    assert Minute.objects.unwritten()[:2] == missing[-2:]


def test_old_ones_are_forgotten(minute: datetime) -> None:
    Minute.objects.write(minute)
    Minute.objects.write(minute - timedelta(days=3))
    assert Minute.objects.forget() == 1
    assert Minute.objects.get().minute == minute


def test_depths_are_counted_up_to_a_share_of_each_lane() -> None:
    for _ in range(12):
        make_job(queue="mail")
    make_job(queue="mail", priority=3)
    make_job(queue="later", next_run_at=now(timedelta(hours=1)))
    mail, later = sorted(Job.objects.depths(3), key=lambda depth: depth.queue, reverse=True)
    assert (mail.due, mail.is_more) == (12, True), "ten and one more of the first lane, one of the other"
    assert (later.due, later.later, later.overdue, later.is_more) == (0, 1, None, False)
