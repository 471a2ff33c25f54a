"""No schedule stops another: not by its declaration, its backlog, its row, its rights or a lock."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from django.core.checks import Warning
from django.db import DatabaseError, IntegrityError, connection, transaction

from pulse_django import Every, task
from pulse_django import Schedule as Declared
from pulse_django.exceptions import InvalidSchedule
from pulse_django.models import Job, Schedule, Tick
from pulse_django.queue.capability import LoopFacts
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import registry
from pulse_django.schedules import declarations, ticking
from pulse_django.schedules import loop as schedule_loop
from pulse_django.schedules.declarations import check_schedules
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.loop import ScheduleLoop
from pulse_django.schedules.ticking import Ticker, tick_due
from pulse_django.schedules.verbs import clock
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from tests.factories import make_job
from tests.faults import all_faults
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)
SILENCE = timedelta(minutes=1)
FINITE = "pulse_schedule_instants_are_finite"


@task(name="tests.isolated")
def isolated(customer: int = 0) -> int:
    return customer


@task(name="tests.needs_an_argument")
def needs_an_argument(customer: int) -> int:
    return customer


def make(name: str, **fields: Any) -> Schedule:
    schedule = Schedule.objects.create(**{"name": name, "task": isolated, "timing": Every(HOUR), **fields})
    sql("UPDATE pulse_django_schedule SET next_at = date_trunc('minute', clock_timestamp()) WHERE id = %s", schedule.pk)
    return schedule


def ticks_of(schedule: Schedule) -> list[str]:
    return [tick.outcome for tick in Tick.objects.filter(schedule=schedule).order_by("at")]


def defined(name: str, **fields: Any) -> Definition:
    return Definition(**{"name": name, "task": "tests.isolated", "timing": Every(HOUR), **fields})


def declare(*definitions: Definition) -> None:
    Schedule.objects.declare(Declarer("project", "w:1", clock("default")), definitions, silence=SILENCE)


@contextmanager
def refusing(table: str, event: str, condition: str, state: str) -> Iterator[None]:
    """Let the server refuse writes of some rows with this SQLSTATE."""
    sql(
        "CREATE FUNCTION tests_refuse() RETURNS trigger LANGUAGE plpgsql AS"
        f" $$ BEGIN IF {condition} THEN RAISE 'refused by the test' USING ERRCODE = '{state}'; END IF;"
        " RETURN NEW; END $$"
    )
    sql(f"CREATE TRIGGER tests_refuse BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION tests_refuse()")
    try:
        yield
    finally:
        sql("DROP FUNCTION tests_refuse() CASCADE")


class TestDeclarations:
    def test_arguments_that_the_task_does_not_take(self, caplog: pytest.LogCaptureFixture) -> None:
        declare(defined("bad", task="tests.needs_an_argument"), defined("good"))
        bad, good = (Schedule.objects.get(name=name) for name in ("bad", "good"))
        assert good.next_at is not None
        assert ticks_of(bad) == ["REFUSED"]
        assert "customer" in Tick.objects.get(schedule=bad).note
        assert "Schedule bad is refused" in caplog.text
        sql("UPDATE pulse_django_schedule SET next_at = date_trunc('hour', clock_timestamp())")
        tick_due("default")
        assert (ticks_of(bad), ticks_of(good)) == (["REFUSED", "REFUSED"], ["FIRED"])

    def test_the_reason_goes_when_the_code_is_corrected(self) -> None:
        registry._tasks["tests.corrected"] = needs_an_argument
        try:
            declare(defined("one", task="tests.corrected"))
            assert "refused" in (Schedule.objects.get().declared or {})
            before = Schedule.objects.get().changed_at
            registry._tasks["tests.corrected"] = isolated
            declare(defined("one", task="tests.corrected"))
        finally:
            registry._tasks.pop("tests.corrected")
        row = Schedule.objects.get()
        assert "refused" not in (row.declared or {})
        assert row.changed_at > before

    def test_a_row_that_the_server_refuses(self, caplog: pytest.LogCaptureFixture) -> None:
        with refusing("pulse_django_schedule", "INSERT", "NEW.name = 'bad'", "23514"):
            declare(defined("bad"), defined("good"))
        assert [row.name for row in Schedule.objects.all()] == ["good"]
        assert "Schedule bad cannot be written: refused by the test" in caplog.text
        declare(defined("bad"), defined("good"))
        assert Schedule.objects.count() == 2

    def test_what_cannot_be_declared_any_more_stays_as_it_was(self, monkeypatch: pytest.MonkeyPatch) -> None:
        declare(defined("one"), defined("two"))
        odd = defined("one")
        object.__setattr__(odd, "timing", "never")
        declare(odd, defined("two"), defined("three"))
        rows = {row.name: row for row in Schedule.objects.all()}
        assert rows["one"].gone_at is None
        assert rows["three"].next_at is not None

    def test_a_missing_right_to_declare(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It may still read and fire."""
        good = make("good")
        denied = refusing("pulse_django_declaration", "INSERT", "true", "42501")
        with loop_of(monkeypatch, [defined("one")]) as loop, denied:
            loop.run_once()
        assert ticks_of(good) == ["FIRED"]

    def test_a_missing_right_to_forget_ticks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        good = make("good")
        with loop_of(monkeypatch, []) as loop:
            monkeypatch.setattr(schedule_loop, "forget_ticks", denied)
            loop.run_once()
        assert ticks_of(good) == ["FIRED"]

    def test_limits_that_two_tasks_declare_differently(self, monkeypatch: pytest.MonkeyPatch) -> None:
        good = make("good")
        with loop_of(monkeypatch, []) as loop:
            monkeypatch.setattr(schedule_loop, "declared_limits", denied)
            loop.run_once()
        assert ticks_of(good) == ["FIRED"]

    def test_checks_name_them(self) -> None:
        Declared("isolated without", task=needs_an_argument, every=HOUR)
        Declared("isolated wrong", task=isolated, every=HOUR, kwargs={"colour": "red"})
        Declared("tests.twice", task=isolated, every=HOUR)
        task(name="tests.twice", schedule=Every(HOUR))(isolated.func)
        try:
            found = {problem.msg.split(":")[0]: problem for problem in check_schedules()}
        finally:
            for name in ("isolated without", "isolated wrong", "tests.twice"):
                declarations.forget(name)
            registry._tasks.pop("tests.twice")
        assert [found[f"Schedule {name}"].id for name in ("isolated without", "isolated wrong")] == [
            "pulse_django.W009",
            "pulse_django.W009",
        ]
        assert found["Two schedules are called 'tests.twice'"].id == "pulse_django.W010"
        assert all(isinstance(problem, Warning) for problem in found.values())
        assert check_schedules() == []

    def test_what_is_no_declaration_is_refused_where_it_is_written(self) -> None:
        cases: list[dict[str, Any]] = [{"task": "app.tasks.work"}, {"args": b"x"}, {"args": "x"}, {"kwargs": [1]}]
        with all_faults() as about:
            for wrong in cases:
                with about(wrong), pytest.raises(InvalidSchedule):
                    Declared("odd", **{"task": isolated, "every": HOUR, **wrong})


def denied(*_: Any, **__: Any) -> Any:
    raise DatabaseError("permission denied")


@contextmanager
def loop_of(monkeypatch: pytest.MonkeyPatch, definitions: list[Definition]) -> Iterator[ScheduleLoop]:
    monkeypatch.setattr(schedule_loop, "declared_in", lambda _: definitions)
    watchdog = Watchdog(GuardedConnection("default", "watchdog"))
    loop = ScheduleLoop(
        GuardedConnection("default", "schedules"), LoopFacts(with_work=lambda: watchdog.found.with_work, declarer="w:1")
    )
    watchdog.take_turn()
    try:
        yield loop
    finally:
        loop.database.hang_up()
        watchdog.database.hang_up()


class TestRows:
    def test_a_right_that_one_of_them_needs(self) -> None:
        running = make_job(status=Status.RUNNING)
        bad, good = make("bad", timing=Every(HOUR, overlap="cancel")), make("good")
        Schedule.objects.filter(pk=bad.pk).update(last_job_id=running.pk)
        with refusing("pulse_django_job_hot", "UPDATE", "true", "42501"):
            tick_due("default")
        assert (ticks_of(bad), ticks_of(good)) == (["REFUSED"], ["FIRED"])
        assert "refused by the test" in Tick.objects.get(schedule=bad).note

    def test_a_lock_that_one_of_them_waits_for(self, rival: Rival, caplog: pytest.LogCaptureFixture) -> None:
        running = make_job(status=Status.RUNNING)
        bad, good = make("bad", timing=Every(HOUR, overlap="cancel")), make("good")
        Schedule.objects.filter(pk=bad.pk).update(last_job_id=running.pk)
        ticker = Ticker("default")
        rival.lock_row(running.pk)
        ticker.step()
        assert (ticks_of(bad), ticks_of(good)) == ([], ["FIRED"])
        assert "Schedule bad could not be decided, and is tried again in 2 s" in caplog.text
        assert ticker.step().schedules == 0, "it is tried again later"
        rival.rollback()
        ticker._failed[bad.pk] = (1, 0.0)
        ticker.step()
        assert ticks_of(bad) == ["FIRED"]
        assert not ticker._failed

    def test_a_row_that_cannot_be_read(self, caplog: pytest.LogCaptureFixture) -> None:
        """A rule of the table refuses those that are known. This is one that no rule foresees."""
        bad, good = make("bad"), make("good")
        [(rule,)] = sql("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", FINITE)
        sql(f"ALTER TABLE pulse_django_schedule DROP CONSTRAINT {FINITE}")
        try:
            sql("UPDATE pulse_django_schedule SET ends_at = 'infinity' WHERE id = %s", bad.pk)
            tick_due("default")
        finally:
            sql("UPDATE pulse_django_schedule SET ends_at = NULL")
            sql(f"ALTER TABLE pulse_django_schedule ADD CONSTRAINT {FINITE} {rule}")
        assert (ticks_of(bad), ticks_of(good)) == ([], ["FIRED"])
        assert "Schedule bad could not be decided, and is tried again in 2 s" in caplog.text

    def test_where_nothing_can_be_written_the_error_is_raised_once(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(ticking, "LONGEST_ALONE", 60.0)
        for number in range(20):
            make(f"one of many {number}")
        with refusing("pulse_django_tick", "INSERT", "true", "42501"), pytest.raises(DatabaseError):
            tick_due("default")
        assert len(caplog.messages) == ticking.ALL_FAIL

    def test_instants_and_durations_are_finite(self) -> None:
        schedule = make("one")
        tick_due("default")
        instants = ["'infinity'", "'-infinity'", "'0044-03-15 12:00 BC'", "'200000-01-01'"]
        columns = "starts_at ends_at next_at waiting_at last_at gone_at paused_at paused_until created_at changed_at"
        durations = ["'-1 s'", "'1000000 years'"]
        cases = [
            *(("schedule", column, value) for column in columns.split() for value in instants),
            *(("schedule", column, value) for column in ("every", "phase", "grace", "jitter") for value in durations),
            *(("tick", column, value) for column in ("at", "decided_at") for value in instants),
        ]
        with all_faults() as about:
            for table, column, value in cases:
                also = ", next_at = NULL" if column == "gone_at" else ""  # another rule asks for it
                statement = f"UPDATE pulse_django_{table} SET {column} = {value}{also}"
                refused = pytest.raises(IntegrityError, match="are_finite")
                with about((table, column, value)), refused, transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(statement)
        schedule.refresh_from_db()


class TestBacklog:
    """Of ticks that were due while no watchdog was running."""

    @pytest.fixture(autouse=True)
    def few(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ticking, "MOST_ROWS", 20)
        monkeypatch.setattr(ticking, "LEAST_ROWS", 20)

    @staticmethod
    def behind(name: str, minutes: int) -> Schedule:
        schedule = make(name, timing=Every(MINUTE, missed="all", overlap="allow"))
        sql(
            "UPDATE pulse_django_schedule SET next_at = date_trunc('minute', clock_timestamp()) - %s * interval '1 min'"
            " WHERE id = %s",
            minutes - 1,
            schedule.pk,
        )
        return schedule

    def test_it_is_written_in_parts_and_each_tick_once(self) -> None:
        late = [self.behind(f"late {number}", 50) for number in range(4)]
        good = make("good")
        end = clock("default")
        ticker, steps = Ticker("default"), 0
        while True:
            before = Tick.objects.count()
            ticked = ticker.step(until=end)
            steps += 1
            assert Tick.objects.count() - before <= 20
            if steps == 1:
                assert ticks_of(good) == ["FIRED"], "a schedule in time does not wait"
            if steps == 2:
                assert Tick.objects.exclude(schedule=good).count() >= 20, "and the latest go on"
            if not ticked.has_more:
                break
        assert steps >= 4 * 50 // 20
        for schedule in late:
            instants = list(Tick.objects.filter(schedule=schedule, outcome="FIRED").order_by("at").values_list("at"))
            assert len(instants) == 50
            assert {later - sooner for (sooner,), (later,) in pairwise(instants)} == {MINUTE}
            schedule.refresh_from_db()
            assert schedule.next_at is not None
            assert schedule.next_at > end
        assert Job.objects.count() == 4 * 50 + 1

    def test_the_latest_are_served_while_others_are_in_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ticking, "MOST_ROWS", 5)
        monkeypatch.setattr(ticking, "LEAST_ROWS", 5)
        late = self.behind("late", 50)
        for number in range(10):
            make(f"in time {number}")
        ticker = Ticker("default")
        assert ticker.step().has_more
        assert not ticks_of(late)
        ticker.step()
        assert ticks_of(late), "or it would wait until all others are done"

    def test_a_slow_server_gets_fewer_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """However slow it is, a step ends before the deadline of its connection, and something is done."""
        self.behind("late", 200)
        monkeypatch.setattr(ticking, "LEAST_ROWS", 5)
        monkeypatch.setattr(ticking, "FAST", 10.0)
        ticker = Ticker("default")
        assert [len(ticker.step().ticks) for _ in range(4)] == [5, 10, 20, 20]
        monkeypatch.setattr(ticking, "SLOW", 0.0)
        assert [len(ticker.step().ticks) for _ in range(4)] == [20, 10, 5, 5]

    def test_a_step_with_little_to_do_says_nothing_of_a_large_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ticking, "LEAST_ROWS", 5)
        monkeypatch.setattr(ticking, "FAST", 10.0)
        make("in time")
        ticker = Ticker("default")
        assert len(ticker.step().ticks) == 1
        assert ticker._rows == 5

    def test_ticks_that_were_missed_are_one_row_and_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        schedule = self.behind("late", 500)
        Schedule.objects.filter(pk=schedule.pk).update(missed="once")
        caplog.set_level(logging.WARNING)
        tick_due("default")
        missed, fired = Tick.objects.filter(schedule=schedule).order_by("at")
        assert (missed.outcome, fired.outcome) == ("MISSED", "FIRED")
        assert missed.note.startswith("499 ticks until ")
        assert len(caplog.messages) == 1
