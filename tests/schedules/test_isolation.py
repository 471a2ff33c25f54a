"""No schedule stops another: not by its declaration, its backlog, its row, its rights or a lock."""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import pairwise, product
from threading import Event, Semaphore
from typing import Any
from unittest import mock

import pytest
from django.core.checks import Warning
from django.db import DatabaseError, IntegrityError, OperationalError, connection, transaction

from pulse_django import Discard, Every, Limit, Snooze, Unique, task
from pulse_django import Schedule as Declared
from pulse_django.exceptions import InvalidSchedule
from pulse_django.limits.keys import lane_key_of_call
from pulse_django.models import Job, Schedule, Tick
from pulse_django.queue.capability import LoopFacts
from pulse_django.queue.declarations import Declarer
from pulse_django.queue.words.states import Status
from pulse_django.run.registry import registry
from pulse_django.schedules import declarations, tick, tick_threads, ticking
from pulse_django.schedules import loop as schedule_loop
from pulse_django.schedules.declarations import check_schedules
from pulse_django.schedules.definitions import Definition
from pulse_django.schedules.loop import ScheduleLoop
from pulse_django.schedules.tick_threads import TickThreads
from pulse_django.schedules.ticking import Ticked, Ticker, tick_due
from pulse_django.schedules.verbs import clock
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from tests.crash.workers import wait_until
from tests.database import empty_tables
from tests.factories import make_job
from tests.faults import all_faults, each_of
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
    sql("UPDATE pulse_django_schedule SET next_at = date_trunc('second', clock_timestamp()) WHERE id = %s", schedule.pk)
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

    @pytest.mark.parametrize("failing", ["forget_ticks", "declared_limits"])
    def test_a_missing_right_to_forget_ticks_and_limits_that_differ(
        self, monkeypatch: pytest.MonkeyPatch, failing: str
    ) -> None:
        good = make("good")
        with loop_of(monkeypatch, []) as loop:
            monkeypatch.setattr(schedule_loop, failing, denied)
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

    @each_of({"task": "app.tasks.work"}, {"args": b"x"}, {"args": "x"}, {"kwargs": [1]})
    def test_what_is_no_declaration_is_refused_where_it_is_written(self, *, wrong: Any) -> None:
        with pytest.raises(InvalidSchedule):
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
        loop.threads.close()
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
        ticker._troubled[bad.pk] = (1, 0.0)
        ticker.step()
        assert ticks_of(bad) == ["FIRED"]
        assert ticker._troubled == {bad.pk: (0, 0.0)}, "it is decided alone from now on"

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

    def test_where_nothing_can_be_written_the_error_is_raised_once(self, caplog: pytest.LogCaptureFixture) -> None:
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


PATIENCE = 20.0  # seconds until a test fails


def asked(by: str) -> Any:
    """Return a task for whose keys a function of the project is called."""

    def key(customer: int) -> int:
        return about_to_ask()

    options: dict[str, Any] = {by: Unique(by=key) if by == "unique" else key}
    options |= {"limit": Limit(max_running=9)} if by == "limit_key" else {}
    return task(name=f"tests.asked_by_{by}", **options)(isolated.func)


about_to_ask: Callable[[], int] = int
ASKED = {by: asked(by) for by in ("unique", "limit_key", "fair_by")}


@contextmanager
def asking(function: Callable[[], int]) -> Iterator[None]:
    with mock.patch(f"{__name__}.about_to_ask", function):
        yield


def is_locked(schedule: Schedule, rival: Rival) -> bool:
    statement = "SELECT id FROM pulse_django_schedule WHERE id = %s FOR UPDATE SKIP LOCKED"
    return not rival.run(sql, statement, schedule.pk)


class TestFunctionsOfTheProject:
    """They make the keys of jobs. No other schedule waits for them."""

    def test_whatever_they_raise_only_their_own_ticks_are_refused(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        raised = [SystemExit(1), CancelledError(), KeyboardInterrupt(), Discard("x"), Snooze(1), GeneratorExit()]
        with all_faults() as about:
            for by, error in product(ASKED, raised):
                empty_tables()
                caplog.clear()
                bad, good = make("bad", task=ASKED[by], kwargs={"customer": 1}), make("good")
                with about((by, error)), asking(mock.Mock(side_effect=error)), loop_of(monkeypatch, []) as loop:
                    loop.run_once()
                    wait_until(lambda bad=bad: ticks_of(bad))  # type: ignore[misc]
                    assert (ticks_of(bad), ticks_of(good)) == (["REFUSED"], ["FIRED"])
                    assert type(error).__name__ in Tick.objects.get(schedule=bad).note
                    assert "Schedule bad could not be decided" in caplog.text

    def test_one_that_never_returns(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, rival: Rival
    ) -> None:
        """It is called outside of any transaction, and without a lock."""
        began, ends, inside, entered = Event(), Event(), list[bool](), []

        def never() -> int:
            entered.append(1)
            if not inside:
                inside.append(connection.in_atomic_block)
                inside.extend(is_locked(one, rival) for one in (bad, good))
                began.set()
            return int(ends.wait(PATIENCE))

        bad = make("bad", task=ASKED["unique"], kwargs={"customer": 1})
        good = make("good", timing=Every(HOUR, overlap="allow"))
        monkeypatch.setattr(tick_threads, "STUCK_AFTER", 0.0)
        with loop_of(monkeypatch, []) as loop:
            with asking(never):
                loop.run_once()
                assert began.wait(PATIENCE)
                assert (ticks_of(bad), ticks_of(good)) == ([], ["FIRED"])
                others = [make(f"asked {number}", task=ASKED["fair_by"], kwargs={"customer": 1}) for number in range(9)]
                loop.run_once()
            sql("UPDATE pulse_django_schedule SET next_at = clock_timestamp() WHERE id = %s", good.pk)
            loop.run_once()
            assert ticks_of(good) == ["FIRED", "FIRED"]
            assert "Schedule bad: after 0 s, it is still being decided" in caplog.text
            wait_until(lambda: loop.run_once() >= 0 and sum(map(bool, map(ticks_of, others))) == 10 - len(entered))
            ends.set()  # all at once, so one may wait too long for a lock, and is tried again
            wait_until(lambda: loop.run_once() >= 0 and all(ticks_of(one) == ["FIRED"] for one in (bad, *others)))
        assert inside == [False, False, False]

    def test_a_schedule_that_changes_meanwhile_is_decided_again(self, rival: Rival) -> None:
        bad = make("bad", task=ASKED["unique"], kwargs={"customer": 1})

        def pausing() -> int:
            rival.run(Schedule.objects.pause, bad.pk, reason="now")
            return 1

        with asking(pausing):
            tick_due("default")
        assert ticks_of(bad) == []
        tick_due("default")
        assert ticks_of(bad) == ["PAUSED"]

    def test_they_are_called_once_for_many_ticks_with_the_arguments_of_the_schedule(self) -> None:
        called = mock.Mock(return_value=7)
        timing = Every(MINUTE, missed="all", overlap="allow")
        many = make("many", task=ASKED["limit_key"], kwargs={"customer": 7}, timing=timing)
        named = make("named", task=named_limit, kwargs={"customer": 7})
        sql("UPDATE pulse_django_schedule SET next_at = next_at - interval '30 min' WHERE id = %s", many.pk)
        with asking(called):
            tick_due("default")
        assert len(ticks_of(many)) == ticking.MOST_ALONE
        assert called.call_count == 1
        keys = {job.task: job.lane_key for job in Job.objects.all()}
        assert keys["tests.named_limit"] == lane_key_of_call(named_limit, (), {"customer": 7})
        assert ticks_of(named) == ["FIRED"]

    def test_a_slow_one_comes_after_the_others_from_then_on(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(ticking, "SLOW_ALONE", 0.0)
        ticker, submitted = Ticker("default"), list[bool]()
        bad = make("bad", task=ASKED["unique"], kwargs={"customer": 1})
        ticker.step()
        assert ticks_of(bad) == ["FIRED"]
        submit = mock.Mock(side_effect=lambda *_, comes_last, **__: submitted.append(comes_last))
        ticker._threads = mock.Mock(taken=(), submit=submit)
        sql("UPDATE pulse_django_schedule SET next_at = date_trunc('hour', clock_timestamp())")
        ticker.step(has_late=False)
        assert submitted == [True]

    def test_one_whose_database_is_away_is_tried_again_by_name(self, caplog: pytest.LogCaptureFixture) -> None:
        """That is no outage of the database of jobs."""
        bad, good = make("bad", task=ASKED["unique"], kwargs={"customer": 1}), make("good")
        with asking(mock.Mock(side_effect=OperationalError("connection refused"))):
            Ticker("default").step()
        assert (ticks_of(bad), ticks_of(good)) == ([], ["FIRED"])
        assert "Schedule bad could not be decided, and is tried again in 2 s: OperationalError: connec" in caplog.text

    def test_a_backlog_is_written_in_small_parts(self) -> None:
        timing = Every(MINUTE, missed="all", overlap="allow")
        make("many", task=ASKED["fair_by"], kwargs={"customer": 7}, timing=timing)
        sql("UPDATE pulse_django_schedule SET next_at = next_at - interval '90 min'")
        ticked = Ticker("default").step()
        assert (len(ticked.ticks), ticked.has_more) == (ticking.MOST_ALONE, True)


@task(name="tests.named_limit", limit=Limit(max_running=9), limit_key="customer")
def named_limit(customer: int = 0) -> None: ...


class TestThreads:
    def test_those_in_time_come_before_a_backlog(self) -> None:
        threads, order, ready = TickThreads("default", "test"), list[str](), Event()

        def work(name: str, *, has_more: bool = False) -> Callable[[Any], Ticked]:
            def decide(_: Any) -> Ticked:
                ready.wait(PATIENCE)
                order.append(name)
                return Ticked(has_more=has_more and order.count(name) == 1)

            return decide

        with mock.patch.object(tick_threads, "MOST_THREADS", 2):  # one of each kind
            threads.submit(1, "first", work("first"), comes_last=False)
            wait_until(lambda: threads._running)
            threads.submit(2, "backlog", work("backlog", has_more=True), comes_last=False, late_by=900.0)
            threads.submit(3, "in time", work("in time"), comes_last=False, late_by=0.1)
            ready.set()
            wait_until(lambda: not threads.taken)
        threads.close()
        assert order == ["first", "in time", "backlog", "backlog"]

    def test_without_a_thread_the_loop_goes_on(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        keyed, good = make("keyed", task=ASKED["unique"], kwargs={"customer": 1}), make("good")
        with loop_of(monkeypatch, []) as loop:
            with mock.patch.object(tick_threads, "start_thread", side_effect=RuntimeError("can't start new thread")):
                loop.run_once()
                loop.run_once()
            assert (ticks_of(keyed), ticks_of(good)) == ([], ["FIRED"])
            assert "wait for a thread: can't start new thread" in caplog.text
            wait_until(lambda: loop.run_once() >= 0 and ticks_of(keyed))

    def test_one_thread_is_left_for_those_that_never_were_slow(self) -> None:
        threads, began, ends = TickThreads("default", "test"), Semaphore(0), Event()

        def slow(_: Any) -> Ticked:
            began.release()
            ends.wait(PATIENCE)
            return Ticked()

        done = Event()
        try:
            for key in range(9):
                threads.submit(key, "slow", slow, comes_last=True)
            threads.submit(10, "quick", lambda _: done.set() or Ticked(), comes_last=False)
            assert done.wait(PATIENCE)
            assert [began.acquire(timeout=PATIENCE) for _ in range(2)] == [True, True]
            assert not began.acquire(blocking=False), "two of three threads are slow"
            threads.submit(8, "slow", slow, comes_last=False)
            wait_until(lambda: 10 not in threads.taken)  # its thread may not have said so yet
            assert len(threads.taken) == 9, "work is known once"
        finally:
            ends.set()
            wait_until(lambda: not threads.taken)
            threads.close()
        assert began.acquire(timeout=PATIENCE)

    def test_a_lock_of_another_transaction_holds_up_its_schedule_alone(
        self, monkeypatch: pytest.MonkeyPatch, rival: Rival
    ) -> None:
        """It holds the unique key of one, and the last job of another. No statement of the loop waits."""
        running = make_job(status=Status.RUNNING)
        keyed, good = make("keyed", task=ASKED["unique"], kwargs={"customer": 1}), make("good")
        cancels = make("cancels", timing=Every(HOUR, overlap="cancel"))
        Schedule.objects.filter(pk=cancels.pk).update(last_job_id=running.pk)
        rival.lock_row(running.pk)
        rival.run(ASKED["unique"].enqueue, customer=2)
        monkeypatch.setattr(tick, "LOCK_WAIT", timedelta(seconds=PATIENCE))
        with loop_of(monkeypatch, []) as loop:
            loop.run_once()
            assert (ticks_of(keyed), ticks_of(cancels), ticks_of(good)) == ([], [], ["FIRED"])
            rival.wait_until_blocked(rival.pid)
            rival.rollback()
            wait_until(lambda: ticks_of(keyed) == ticks_of(cancels) == ["FIRED"])

    def test_a_backlog_and_large_arguments_are_decided_beside_the_loop(self, monkeypatch: pytest.MonkeyPatch) -> None:
        large, late, good = make("large", kwargs={"customer": 1}), make("late"), make("good")
        Schedule.objects.filter(pk=large.pk).update(kwargs={"customer": " ".join(map(str, range(9_999)))})
        sql("UPDATE pulse_django_schedule SET next_at = next_at - interval '2 min' WHERE id = %s", late.pk)
        with loop_of(monkeypatch, []) as loop:
            submitted: list[int] = []
            loop._ticker._threads = mock.Mock(taken=(), submit=lambda key, *_, **__: submitted.append(key))
            loop.run_once()
            assert [ticks_of(one) for one in (large, late, good)] == [[], [], ["FIRED"]]
            assert submitted == [ticking.LATE, large.pk]


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
            assert Tick.objects.count() - before <= 20 + (steps == 1)
            assert ticks_of(good) == ["FIRED"], "a schedule in time does not wait"
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
        assert Ticker("default").step().has_more
        assert len(ticks_of(late)) == len(Tick.objects.exclude(schedule=late)) == 5

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
        assert (ticker._in_time._rows, ticker._late._rows) == (5, 5)

    def test_ticks_that_were_missed_are_one_row_and_one_line(self, caplog: pytest.LogCaptureFixture) -> None:
        schedule = self.behind("late", 500)
        Schedule.objects.filter(pk=schedule.pk).update(missed="once")
        caplog.set_level(logging.WARNING)
        tick_due("default")
        missed, fired = Tick.objects.filter(schedule=schedule).order_by("at")
        assert (missed.outcome, fired.outcome) == ("MISSED", "FIRED")
        assert missed.note.startswith("499 ticks until ")
        assert len(caplog.messages) == 1
