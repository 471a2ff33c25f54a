"""The loop of a watchdog: a fleet without schedules sends nothing for them, and a large one wakes up a few workers."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pulse_django import Every, task
from pulse_django.models import Job, Limiter, Schedule, Tick
from pulse_django.queue.capability import LoopFacts
from pulse_django.schedules import declarations
from pulse_django.schedules.loop import BETWEEN_CLEANUPS, LONGEST_PAUSE, PUNCTUAL, ScheduleLoop
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

HOUR = timedelta(hours=1)


@task(name="tests.looped")
def looped() -> None: ...


@pytest.fixture
def watchdog() -> Iterator[Watchdog]:
    database = GuardedConnection("default", "watchdog")
    yield Watchdog(database)
    database.hang_up()


@pytest.fixture
def loop(watchdog: Watchdog, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScheduleLoop]:
    monkeypatch.setattr("pulse_django.schedules.loop.declared_in", lambda _: [])
    monkeypatch.setattr("pulse_django.schedules.loop.declared_limits", dict)
    loop = ScheduleLoop(
        GuardedConnection("default", "schedules"), LoopFacts(with_work=lambda: watchdog.found.with_work, declarer="w:1")
    )
    yield loop
    loop.database.hang_up()


def test_a_fleet_without_schedules_sends_no_statement(watchdog: Watchdog, loop: ScheduleLoop) -> None:
    watchdog.take_turn()
    with CaptureQueriesContext(connection) as sent:
        assert loop.run_once() > 0
    assert len(sent) == 0


def test_limits_of_the_code_are_declared_and_those_that_are_gone_forgotten(
    watchdog: Watchdog, loop: ScheduleLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = {"stripe": {"max_running": 3}}
    monkeypatch.setattr("pulse_django.schedules.loop.declared_limits", lambda: limits)
    watchdog.take_turn()
    loop.run_once()
    assert Limiter.objects.get().numbers == {"max_running": 3}
    limits.clear()
    watchdog.take_turn()
    loop._declare_at = 0.0
    loop.run_once()
    assert Limiter.objects.get().numbers == {}


def test_a_sweep_finds_the_first_schedule(watchdog: Watchdog, loop: ScheduleLoop) -> None:
    watchdog.take_turn()
    Schedule.objects.create(name="hourly", task=looped, timing=Every(HOUR))
    loop.run_once()
    sql("UPDATE pulse_django_schedule SET next_at = clock_timestamp()")
    watchdog.take_turn()
    loop.run_once()
    assert Job.objects.count() == 1


def test_it_sleeps_until_the_next_instant_and_a_second_at_most(watchdog: Watchdog, loop: ScheduleLoop) -> None:
    Schedule.objects.create(name="hourly", task=looped, timing=Every(HOUR))
    watchdog.take_turn()
    sql("UPDATE pulse_django_schedule SET next_at = clock_timestamp() + interval '30 s'")
    assert loop.run_once() == LONGEST_PAUSE
    sql("UPDATE pulse_django_schedule SET next_at = clock_timestamp() + interval '500 ms'")
    assert 0 < loop.run_once() <= 0.5


def test_an_idle_look_is_one_statement(watchdog: Watchdog, loop: ScheduleLoop) -> None:
    Schedule.objects.create(name="hourly", task=looped, timing=Every(HOUR))
    watchdog.take_turn()
    loop.run_once()
    with CaptureQueriesContext(connection) as sent:
        loop.run_once()
    assert len(sent) == 1


def test_in_a_large_fleet_about_eight_are_punctual(watchdog: Watchdog, loop: ScheduleLoop) -> None:
    loop.facts = LoopFacts(fleet_size=lambda: 400)
    pauses = [loop._pause(0.1) for _ in range(4_000)]
    punctual = [one for one in pauses if one == 0.1]
    assert len(punctual) == pytest.approx(4_000 * PUNCTUAL / 400, rel=0.6)
    looks = 400 * (len(pauses) - len(punctual)) / sum(one for one in pauses if one != 0.1)
    assert looks < 12  # a second, of all the others together


def test_old_ticks_are_forgotten(watchdog: Watchdog, loop: ScheduleLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = Schedule.objects.create(name="hourly", task=looped, timing=Every(HOUR))
    sql(
        "INSERT INTO pulse_django_tick (schedule_id, at, outcome)"
        " SELECT %s, clock_timestamp() - (number - 0.5) * interval '1 day', 'FIRED'"
        " FROM generate_series(1, 100) AS number",
        schedule.pk,
    )
    watchdog.take_turn()
    loop.run_once()
    assert Tick.objects.count() == 30
    assert loop._forget_at > BETWEEN_CLEANUPS / 2


def test_what_the_code_declares_is_written_without_waiting_for_a_sweep(
    watchdog: Watchdog, loop: ScheduleLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    declarations.Schedule("tests looped", task=looped, every=HOUR)
    try:
        found: list[Any] = [one for one in declarations.declared()[0] if one.name == "tests looped"]
        monkeypatch.setattr("pulse_django.schedules.loop.declared_in", lambda _: found)
        loop.run_once()
    finally:
        declarations.forget("tests looped")
    assert Schedule.objects.get().name == "tests looped"
