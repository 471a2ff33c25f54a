"""The minutes: written by whoever comes first, with what the conditions say, and at nobody's cost."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import OperationalError
from django.test import Client

from pulse_django.health.conditions import Condition, Severity, Subject
from pulse_django.limits.facts import limits
from pulse_django.metrics import minute_recorder
from pulse_django.metrics.minute_recorder import MinuteRecorder
from pulse_django.models import Limiter, Minute
from pulse_django.queue.database.job_queries import ServerClock
from pulse_django.queue.words.states import HOT, Status
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.watchdog import Watchdog
from tests.factories import make_job, now
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

WORDS: dict[str, Any] = {"severity": Severity.RISK, "says": "", "means": "", "to_do": ""}
TWO = "SELECT n, 'x' FROM generate_series(1, 2) AS n LIMIT %(limit)s"
MANY = "SELECT n, 'x' FROM generate_series(1, 1000) AS n LIMIT %(limit)s"
NONE = "SELECT 1, 'x' WHERE false LIMIT %(limit)s"


def question(name: str, sql: str) -> Condition:
    return Condition(name=name, sql=sql, **WORDS)


def fails(alias: str, limits: Any) -> Any:
    raise RuntimeError("a bug in somebody's question")


@pytest.fixture
def writer() -> Iterator[MinuteRecorder]:
    database = GuardedConnection("default", "minutes")
    yield MinuteRecorder(database)
    database.hang_up()


def latest() -> dict[str, Any]:
    signs: dict[str, Any] = Minute.objects.latest("minute").signs
    return signs


def test_minutes_say_how_many_jobs_of_a_limit_ran(
    writer: MinuteRecorder, monkeypatch: pytest.MonkeyPatch, admin_client: Client
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(minute_recorder, "limits", lambda alias: asked.append(alias) or limits(alias))
    monkeypatch.setattr(minute_recorder, "declared_limits", dict)
    writer.write()
    assert asked == []
    assert "limits" not in latest()
    sql("DELETE FROM pulse_django_minute")
    monkeypatch.setattr(minute_recorder, "declared_limits", lambda: {"stripe": {"max_running": 5}})
    Limiter.objects.declare_new("project", {"stripe": {"max_running": 5}})
    for _ in range(3):
        make_job(Status.RUNNING, lane_key="stripe:0000a")
    make_job(lane_key="stripe:0000a", next_run_at=now(timedelta(seconds=-1)))
    writer.write()
    assert latest()["limits"] == {"stripe": [3, 1]}
    page = admin_client.get("/admin/pulse_django/limiter/stripe/change/").content.decode()
    assert "running in the last three hours: 3 at most" in page


def test_minutes_are_written_with_what_the_conditions_say(
    writer: MinuteRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    bug = Condition(name="fails", look=fails, **WORDS)
    asked = [
        bug,
        question("broken", TWO),
        question("much", MANY),
        question("holds", NONE),
        question("odd", "SELECT 1/0 -- %(limit)s"),
    ]
    monkeypatch.setattr("pulse_django.health.conditions.asking.known", lambda **_: asked)
    writer.write()
    assert Minute.objects.count() == 10
    assert latest()["conditions"] == {"broken": 2, "much": 20}
    assert latest()["unasked"] == ["fails", "odd"]
    newest = Minute.objects.latest("minute").minute
    writer.write()
    ended = (Minute.objects.latest("minute").minute - newest) // timedelta(minutes=1)  # meanwhile
    assert Minute.objects.count() == 10 + ended, "nothing else is over that was not"


def test_only_who_wrote_the_minute_asks(writer: MinuteRecorder, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(MinuteRecorder, "_ask", lambda self, minute: asked.append("asked"))
    rival = MinuteRecorder(GuardedConnection("default", "rival"))
    unwritten = Minute.objects.unwritten()
    monkeypatch.setattr("pulse_django.metrics.minute_stats.MinuteManager.unwritten", lambda self: unwritten)
    writer.write()
    rival.write()  # looked before the other had written
    rival.database.hang_up()
    assert asked == ["asked"]


def test_slow_questions_are_left_unasked_when_their_time_is_up(
    writer: MinuteRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]

    def takes_a_minute(alias: str, limits: Any) -> list[Subject]:
        clock[0] += 60
        return []

    slow = Condition(name="slow", look=takes_a_minute, **WORDS)
    late = Condition(name="late", look=lambda alias, limits: [], **WORDS)
    monkeypatch.setattr("pulse_django.health.conditions.asking.known", lambda **_: [slow, late])
    monkeypatch.setattr("pulse_django.health.conditions.asking.time", SimpleNamespace(monotonic=lambda: clock[0]))
    writer.write()
    assert latest()["unasked"] == ["late"]


def test_no_connection_is_kept_between_two_minutes(writer: MinuteRecorder) -> None:
    mine = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pulse minutes'"
    assert writer.run_once() >= 5, "a worker that starts has better things to do"
    assert not Minute.objects.exists()
    writer.run_once()
    assert Minute.objects.exists()
    deadline = time.monotonic() + 5
    while sql(mine)[0][0] and time.monotonic() < deadline:
        time.sleep(0.02)  # a server notices a moment later that somebody has gone
    assert sql(mine) == [(0,)]


def test_a_watchdog_does_its_work_though_no_minute_can_be_written(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, *args: Any, **options: Any) -> None:
        raise OperationalError("disk full")

    monkeypatch.setattr("pulse_django.metrics.minute_stats.MinuteManager.write", fail)
    monkeypatch.setattr("pulse_django.managers.JobManager.server_clock", lambda self: ServerClock(1.0, 1e6))
    lost = make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-1)))
    old = make_job(Status.COMPLETED, era=HOT, finished_at=now(timedelta(days=-400)))
    dog = Watchdog(GuardedConnection("default", "watchdog"))
    swept = dog.sweep(housekeeping=True)
    dog.database.hang_up()
    assert [one.lease.job_id for one in swept.reaped] == [lost.pk]
    assert swept.pruned[Status.COMPLETED] == 1
    assert old.pk not in [one.lease.job_id for one in swept.reaped]


def test_a_sweep_as_long_as_a_lease_is_not_taken_for_sleep(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    """The next one must look for lost runs, and not wait for a lease."""
    settings.PULSE = {"LEASE_TTL": 3.0, "HEARTBEAT_INTERVAL": 1.0, "WATCHDOG_INTERVAL": 0.2}
    dog = Watchdog(GuardedConnection("default", "watchdog"))
    dog.sweep(housekeeping=False)  # has asked the server once
    monkeypatch.setattr("pulse_django.health.unknown_tasks.give_up", lambda alias: time.sleep(3.5) or [])
    dog.sweep(housekeeping=True)
    lost = make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-1)))
    swept = dog.sweep(housekeeping=False)
    dog.database.hang_up()
    assert [one.lease.job_id for one in swept.reaped] == [lost.pk]
