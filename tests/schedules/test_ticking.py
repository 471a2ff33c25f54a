"""Ticks in the database: each fires once, whatever dies, is edited or is broken beside it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest
from django.db import connection, connections, transaction

from pulse_django import Cron, Every, task
from pulse_django.exceptions import InvalidSchedule
from pulse_django.models import Job, Schedule, Tick
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.states import Status
from pulse_django.schedules import declarations, planning, ticking
from pulse_django.schedules.tick import look
from pulse_django.schedules.tick_rules import Pause, decide
from pulse_django.schedules.ticking import run_now, tick_due
from pulse_django.schedules.timings import Missed, Overlap
from pulse_django.schedules.verbs import clock
from tests.database import empty_tables
from tests.factories import WorkerFactory, make_job
from tests.faults import each_of
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@task(name="tests.scheduled", queue_name="nightly", priority=7, max_attempts=3)
def scheduled(customer: int = 0) -> int:
    return customer


def now() -> datetime:
    return clock("default")


def make(name: str = "hourly", *, since: timedelta | None = None, **fields: Any) -> Schedule:
    """Create a schedule; ``since``: its next tick was due so long ago."""
    fields = {"task": scheduled, **({} if {"cron", "every"} & fields.keys() else {"timing": Every(HOUR)}), **fields}
    schedule = Schedule.objects.create(name=name, **fields)
    if since is not None:
        due(schedule, since)
    return schedule


def due(schedule: Schedule, since: timedelta) -> datetime:
    """Let the next tick of this schedule be the latest one that is so long ago."""
    step = schedule.every or HOUR
    ago = now() - since
    at = datetime.fromtimestamp(ago.timestamp() // step.total_seconds() * step.total_seconds(), UTC)
    Schedule.objects.filter(pk=schedule.pk).update(next_at=at)
    schedule.refresh_from_db()
    return at


def ticks_of(schedule: Schedule) -> list[str]:
    return [tick.outcome for tick in Tick.objects.filter(schedule=schedule).order_by("at")]


class TestFiring:
    def test_a_tick_writes_its_row_its_job_and_the_next_instant(self) -> None:
        schedule = make(kwargs={"customer": 5}, since=HOUR)
        at = schedule.next_at
        assert at is not None
        tick_due("default", until=at + SECOND)
        job, tick = Job.objects.get(), Tick.objects.get()
        schedule.refresh_from_db()
        assert (tick.at, tick.outcome, tick.job_id) == (at, "FIRED", job.pk)
        assert (job.task, job.kwargs, job.queue) == ("tests.scheduled", {"customer": 5}, "nightly")
        assert (job.priority, job.max_attempts, job.next_run_at) == (7, 3, at)
        assert job.meta == {"schedule": "hourly", "tick": at.isoformat()}
        assert (schedule.next_at, schedule.last_at, schedule.last_job_id) == (at + HOUR, at, job.pk)

    def test_queue_and_priority_of_the_schedule_win(self) -> None:
        make(queue="elsewhere", priority=-5, since=SECOND)
        tick_due("default")
        job = Job.objects.get()
        assert (job.queue, job.priority) == ("elsewhere", -5)

    def test_jitter_delays_the_job_and_not_the_tick(self) -> None:
        schedule = make(timing=Every(HOUR, jitter=HOUR), since=SECOND)
        at = schedule.next_at
        tick_due("default")
        job = Job.objects.get()
        assert at is not None
        assert at < job.next_run_at < at + HOUR
        assert Tick.objects.get().at == at

    @pytest.mark.parametrize("row_is_lost", [False, True])
    def test_a_tick_that_has_fired_never_fires_again(self, row_is_lost: bool) -> None:
        schedule = make(since=SECOND)
        at = schedule.next_at
        tick_due("default")
        if row_is_lost:
            Tick.objects.all().delete()
        Schedule.objects.filter(pk=schedule.pk).update(next_at=at, last_job_id=None)  # as a restored dump does
        tick_due("default")
        assert Tick.objects.get().job_id == Job.objects.get().pk

    def test_what_another_process_has_locked_is_skipped(self, rival: Rival) -> None:
        first, second = make("first", since=SECOND), make("second", since=SECOND)
        rival.run(transaction.set_autocommit, False)
        rival.run(sql, f"SELECT id FROM pulse_django_schedule WHERE id = {first.pk} FOR UPDATE")
        assert tick_due("default").schedules == 1
        assert (ticks_of(first), ticks_of(second)) == ([], ["FIRED"])

    def test_ticks_of_thousands_at_one_instant_all_fire(self) -> None:
        make("customer 0", since=SECOND)
        columns = ", ".join(
            field.column for field in Schedule._meta.concrete_fields if field.name not in ("id", "name")
        )
        sql(
            f"INSERT INTO pulse_django_schedule (name, {columns})"
            f" SELECT 'customer ' || n, {columns} FROM pulse_django_schedule, generate_series(1, 1199) AS n"
        )
        found = 0
        while (ticked := tick_due("default")).schedules:
            found += len(ticked.job_ids)
        assert found == Job.objects.count() == Tick.objects.filter(outcome="FIRED").count() == 1_200

    def test_eight_at_once_fire_each_tick_once(self) -> None:
        for number in range(100):
            make(f"customer {number}", since=SECOND)

        def fire() -> None:
            while tick_due("default").schedules:
                pass
            connections.close_all()

        threads = [threading.Thread(target=fire) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        while tick_due("default").schedules:  # what was locked when the last of them looked
            pass
        assert Job.objects.count() == 100


class TestOverlap:
    def fired(self, overlap: str) -> Schedule:
        """Return a schedule whose last job is not finished, and which is due again."""
        schedule = make(timing=Every(HOUR, overlap=overlap), since=2 * HOUR)
        assert schedule.next_at is not None
        tick_due("default", until=schedule.next_at)
        schedule.refresh_from_db()
        return schedule

    @each_of(("allow", "FIRED", 2), ("skip", "OVERLAP", 1), ("wait", "WAITING", 1))
    def test_while_the_last_job_is_not_finished(self, *, overlap: Any, outcome: Any, jobs: Any) -> None:
        empty_tables()
        schedule = self.fired(overlap)
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) == ["FIRED", outcome]
        assert Job.objects.count() == jobs

    def test_a_tick_that_waits_fires_when_the_last_job_is_finished(self) -> None:
        schedule = self.fired("wait")
        tick_due("default", until=schedule.next_at)
        assert not look("default").waits_no_longer
        assert tick_due("default", until=schedule.next_at).schedules == 0
        assert schedule.last_job_id is not None
        Job.objects.request_cancel([schedule.last_job_id])
        assert look("default").waits_no_longer
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) == ["FIRED", "FIRED"]
        assert Job.objects.filter(status=Status.PENDING).count() == 1
        schedule.refresh_from_db()
        assert schedule.waiting_at is None

    def test_a_tick_that_waits_does_not_fire_in_a_pause(self) -> None:
        schedule = self.fired("wait")
        tick_due("default", until=schedule.next_at)
        Schedule.objects.pause(schedule.pk, reason="holiday")
        Job.objects.request_cancel([schedule.last_job_id or 0])
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) == ["FIRED", "PAUSED"]

    def test_the_last_job_is_asked_to_stop_and_one_that_is_finished_overlaps_nothing(self) -> None:
        schedule = self.fired("cancel")
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) == ["FIRED", "FIRED"]
        first = Job.objects.get(pk=schedule.last_job_id)
        assert (first.status, first.cancel_reason) == (Status.CANCELLED, "the next run of its schedule is due")
        Schedule.objects.filter(pk=schedule.pk).update(overlap="skip")
        schedule.refresh_from_db()
        Job.objects.request_cancel([schedule.last_job_id or 0])
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) == ["FIRED"] * 3

    def test_a_tick_that_waited_and_the_next_one_do_not_fire_together(self) -> None:
        schedule = make(timing=Every(HOUR, overlap="wait"), since=3 * HOUR)
        for outcomes in (["FIRED"], ["FIRED", "WAITING"]):
            tick_due("default", until=schedule.next_at)
            schedule.refresh_from_db()
            assert ticks_of(schedule) == outcomes
        Job.objects.request_cancel([schedule.last_job_id or 0])
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) == ["FIRED", "FIRED", "WAITING"]


class TestPausesAndChanges:
    def test_one_that_has_ended_goes_on_if_its_end_moves(self) -> None:
        schedule = make()
        past = clock("default") - HOUR
        Schedule.objects.filter(pk=schedule.pk).update(next_at=None, ends_at=past)
        schedule.refresh_from_db()
        schedule.ends_at = past + timedelta(days=9)
        schedule.save(by="ada")
        assert Schedule.objects.get().next_at is not None

    def test_ticks_of_a_pause_have_rows_and_do_not_fire(self) -> None:
        schedule = make(since=SECOND)
        Schedule.objects.pause(schedule.pk, reason="holiday", by="ada")
        tick_due("default")
        tick = Tick.objects.get()
        assert (tick.outcome, tick.note) == ("PAUSED", "holiday")

    def test_what_came_during_a_pause_never_fires_after_it(self) -> None:
        schedule = make(timing=Every(HOUR, missed="all", overlap="allow"), since=3 * HOUR)
        Schedule.objects.pause(schedule.pk, reason="holiday")
        Schedule.objects.resume(schedule.pk)
        tick_due("default")
        assert set(ticks_of(schedule)) == {"PAUSED"}
        schedule.refresh_from_db()
        assert (schedule.paused_at, schedule.pause_reason) == (None, "")
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule)[-1] == "FIRED"

    def test_a_pause_with_an_end_ends(self) -> None:
        schedule = make(since=SECOND)
        Schedule.objects.pause(schedule.pk, duration=30 * MINUTE)
        tick_due("default")
        schedule.refresh_from_db()
        tick_due("default", until=schedule.next_at)
        assert ticks_of(schedule) in (["PAUSED", "FIRED"], ["PAUSED", "PAUSED"])
        if ticks_of(schedule) == ["PAUSED", "PAUSED"]:  # the next full hour comes before the end
            schedule.refresh_from_db()
            tick_due("default", until=schedule.next_at)
            assert ticks_of(schedule)[-1] == "FIRED"

    def test_a_schedule_never_fires_for_before_its_change(self) -> None:
        schedule = make(timing=Every(HOUR, missed="all", overlap="allow"), since=3 * HOUR)
        schedule.every = 2 * HOUR
        schedule.save(by="ada")
        assert schedule.next_at is not None
        assert schedule.next_at > now()
        assert set(ticks_of(schedule)) == {"MISSED"}
        assert Tick.objects.first().note == "the schedule was changed before this tick was decided"  # type: ignore[union-attr]
        assert tick_due("default").schedules == 0

    @each_of(
        *product(list(Missed), list(Overlap), [None, 90 * MINUTE], [False, True], ["none", "arguments", "time"]),
    )
    def test_each_edit_with_each_policy(
        self, *, missed: Any, overlap: Any, grace: Any, is_paused: Any, edit: Any
    ) -> None:
        empty_tables()
        timing = Every(HOUR, missed=missed, overlap=overlap, grace=grace)
        schedule = make(timing=timing, since=3 * HOUR)
        first, end = schedule.next_at, now()
        assert first is not None
        decided = decide(timing, first, end, pause=Pause(reason="no") if is_paused else None)
        expected = [tick.outcome.value for tick in decided.ticks]
        if is_paused:
            Schedule.objects.pause(schedule.pk, reason="no")
            schedule.refresh_from_db()
        if edit == "arguments":
            schedule.kwargs = {"customer": 9}
        elif edit == "time":
            schedule.every = 2 * HOUR
            expected = ["MISSED"] * len(expected)
        if edit != "none":
            schedule.save(by="ada")
        tick_due("default", until=end)
        assert ticks_of(schedule) == expected
        assert Job.objects.count() == expected.count("FIRED")
        schedule.refresh_from_db()
        assert schedule.next_at is not None
        assert schedule.next_at > end

    def test_a_change_of_the_arguments_keeps_what_is_due_and_an_old_copy_does_not_undo_a_tick(self) -> None:
        schedule = make(since=SECOND)
        old = Schedule.objects.get(pk=schedule.pk)
        schedule.kwargs = {"customer": 9}
        schedule.save()
        tick_due("default")
        assert Job.objects.get().kwargs == {"customer": 9}
        old.kwargs = {"customer": 10}
        old.save()
        row = Schedule.objects.get(pk=schedule.pk)
        assert row.last_job_id == Job.objects.get().pk
        assert row.next_at is not None
        assert row.next_at > now()
        assert old.next_at == row.next_at

    def test_run_now_is_a_tick_by_hand_that_moves_nothing(self) -> None:
        schedule = make()
        job_id = run_now("default", schedule.pk, by="ada")
        tick = Tick.objects.get()
        assert (tick.outcome, tick.job_id, tick.note) == ("MANUAL", job_id, "by ada")
        row = Schedule.objects.get()
        assert (row.next_at, row.last_at, row.last_job_id) == (schedule.next_at, None, job_id)

    def test_a_run_by_hand_beside_the_last_job_does_not_hide_it(self) -> None:
        schedule = make(since=2 * HOUR)
        tick_due("default", until=schedule.next_at)
        last = Schedule.objects.get().last_job_id
        run_now("default", schedule.pk)
        assert Schedule.objects.get().last_job_id == last


class TestOneBadSchedule:
    def test_arguments_of_a_task_that_was_encrypted_later(self, monkeypatch: pytest.MonkeyPatch) -> None:
        schedule = make(kwargs={"customer": 7}, since=SECOND)
        monkeypatch.setattr(declarations, "encrypts", lambda _: True)
        tick_due("default")
        assert ticks_of(schedule) == ["REFUSED"]
        assert "is encrypted" in Tick.objects.get().note
        assert not Job.objects.exists()

    def test_it_is_left_to_a_live_worker_that_knows_the_task(self) -> None:
        schedule = make(since=SECOND)
        Schedule.objects.filter(pk=schedule.pk).update(task="theirs")
        WorkerFactory(tasks=["theirs"])
        assert tick_due("default").schedules == 0
        assert ticks_of(schedule) == []

    @each_of(
        ({"task": "nobody.knows"}, "nobody.knows"),
        ({"kwargs": {"colour": "red"}}, "colour"),
        ({"cron": "no cron", "every": None, "tz": "UTC"}, ""),
        ({"cron": "0 3 * * *", "every": None, "tz": "Nowhere/Land"}, ""),
        ({"args": "text"}, ""),
        ({"kwargs": [1]}, ""),
        ({"missed": "maybe"}, ""),
        ({"every": timedelta(0)}, ""),
    )
    def test_what_can_never_run_is_refused_and_the_others_fire(self, *, values: Any, note: Any) -> None:
        empty_tables()
        bad, good = make("bad", since=SECOND), make("good", since=SECOND)
        Schedule.objects.filter(pk=bad.pk).update(**values)
        tick_due("default")
        assert (ticks_of(bad), ticks_of(good)) == (["REFUSED"], ["FIRED"])
        assert note in Tick.objects.get(schedule=bad).note

    def test_a_job_that_the_table_refuses(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A batch that fails is decided one by one."""
        bad, good = make("bad", since=SECOND), make("good", since=SECOND)
        jobs_of = planning.jobs_of

        def spoilt(schedule: Schedule, *args: Any) -> list[NewJob]:
            made = jobs_of(schedule, *args)
            for job in made if schedule == bad else []:
                object.__setattr__(job, "max_attempts", 0)
            return made

        monkeypatch.setattr(planning, "jobs_of", spoilt)
        ticker = ticking.Ticker("default")
        ticker.step()
        assert (ticks_of(bad), ticks_of(good)) == (["REFUSED"], ["FIRED"])
        assert list(ticker._troubled) == [bad.pk], "it does not fail the next batch"


class TestCreating:
    def test_it_is_refused_at_once_what_could_never_run(self) -> None:
        with pytest.raises(InvalidSchedule, match="no task is called"):
            make(task="nobody.knows")
        with pytest.raises(InvalidSchedule, match="colour"):
            make(kwargs={"colour": "red"})
        with pytest.raises(InvalidSchedule, match="Bad minute"):
            make(cron="61 * * * *")
        with pytest.raises(InvalidSchedule, match="either cron or every"):
            make(cron="* * * * *", every=HOUR)

    def test_an_expression_without_a_zone_is_in_the_projects(self, settings: Any) -> None:
        settings.TIME_ZONE = "Europe/Berlin"
        assert make(cron="0 3 * * *").tz == "Europe/Berlin"
        assert make("other", timing=Cron("0 3 * * *")).tz == "Europe/Berlin"

    def test_a_caller_that_rolls_back_has_created_nothing(self) -> None:
        with pytest.raises(ZeroDivisionError), transaction.atomic():
            make()
            raise ZeroDivisionError
        assert Schedule.objects.count() == 0

    def test_a_schedule_and_its_ticks_can_be_deleted(self) -> None:
        schedule = make(since=SECOND)
        tick_due("default")
        schedule.delete()
        assert Tick.objects.count() == 0
        assert Job.objects.count() == 1


def test_looking_says_when_the_next_is_due() -> None:
    assert look("default") == (None, False)
    make(since=HOUR)
    assert (look("default").due_in or 0) < 0
    make_job()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE pulse_django_schedule SET next_at = clock_timestamp() + interval '90 s'")
    assert 80 < (look("default").due_in or 0) <= 90
