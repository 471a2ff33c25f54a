"""``pulse_import_schedules``: what others have in their tables, and what it is here."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError

from pulse_django import Cron, Every, task
from pulse_django.models import Schedule
from pulse_django.schedules.imports import Found, from_celery_beat
from pulse_django.schedules.timings import next_of
from tests.database import empty_tables
from tests.faults import each_of
from tests.operations.steps import run
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

BEAT = """
CREATE TABLE django_celery_beat_crontabschedule (
    id serial PRIMARY KEY, minute text, hour text, day_of_month text, month_of_year text, day_of_week text,
    timezone text
);
CREATE TABLE django_celery_beat_intervalschedule (id serial PRIMARY KEY, every int, period text);
CREATE TABLE django_celery_beat_periodictask (
    id serial PRIMARY KEY, name text, task text, args text, kwargs text, queue text, enabled bool, one_off bool,
    start_time timestamptz, expires timestamptz, expire_seconds int, priority int, last_run_at timestamptz,
    crontab_id int, interval_id int
)
"""


@task(name="tests.imported")
def imported(number: int = 0, name: str = "") -> None: ...


@pytest.fixture
def beat(pulse_db: None) -> Iterator[None]:
    for statement in BEAT.split(";"):
        sql(statement)
    yield
    sql("DROP TABLE django_celery_beat_periodictask, django_celery_beat_crontabschedule")
    sql("DROP TABLE django_celery_beat_intervalschedule")


def places(count: int) -> str:
    return ", ".join(["%s"] * count)


def beat_task(name: str, *, cron: tuple[str, ...] = (), every: tuple[int, str] | None = None, **fields: Any) -> Found:
    crontab = interval = None
    if cron:
        columns = "minute, hour, day_of_month, month_of_year, day_of_week, timezone"
        into = (
            f"INSERT INTO django_celery_beat_crontabschedule ({columns}) VALUES (%s, %s, %s, %s, %s, %s) RETURNING id"
        )
        [(crontab,)] = sql(into, *cron)
    if every:
        into = "INSERT INTO django_celery_beat_intervalschedule (every, period) VALUES (%s, %s) RETURNING id"
        [(interval,)] = sql(into, *every)
    row: dict[str, Any] = {"task": "tests.imported", "args": "[]", "kwargs": "{}", "enabled": True, "one_off": False}
    row |= {"name": name, "crontab_id": crontab, "interval_id": interval, **fields}
    sql(
        f"INSERT INTO django_celery_beat_periodictask ({', '.join(row)}) VALUES ({places(len(row))}) RETURNING id",
        *row.values(),
    )
    return {one.name: one for one in from_celery_beat("default")}[name]


@pytest.mark.usefixtures("beat")
class TestCeleryBeat:
    def test_crontabs_and_intervals(self) -> None:
        nightly = beat_task(
            "nightly", cron=("0", "3, 4", "*", "*", "mon-fri", "Europe/Berlin"), args="[7]", queue="slow"
        )
        assert nightly.timing == Cron("0 3,4 * * mon-fri", "Europe/Berlin")
        assert (nightly.args, nightly.queue) == ([7], "slow")
        assert beat_task("often", every=(15, "minutes")).timing == Every(timedelta(minutes=15))
        assert beat_task("off", every=(15, "minutes"), enabled=False).is_disabled

    def test_an_interval_goes_on_from_its_last_run(self) -> None:
        last = datetime(2026, 5, 13, 14, 35, 20, tzinfo=UTC)
        daily = beat_task("daily", every=(1, "days"), last_run_at=last).timing
        assert daily is not None
        assert next_of(daily, last) == last + timedelta(days=1)

    def test_priority_is_kept_and_what_expires_is_said(self) -> None:
        found = beat_task("urgent", every=(1, "hours"), priority=9, expire_seconds=120)
        assert found.priority == 9
        assert beat_task("most urgent", every=(1, "hours"), priority=255).priority == 100
        assert found.notes == (
            "its jobs do not expire: use @task(expires=timedelta(seconds=120))",
            "higher priorities run first, as in RabbitMQ; in Redis it was lower ones",
        )

    @each_of(
        ({"every": (15, "minutes"), "one_off": True}, "runs once"),
        ({}, "follows the sun"),
        ({"cron": ("0", "3", "1-7", "*", "mon", "UTC")}, "fit both fields"),
        ({"cron": ("61", "3", "*", "*", "*", "UTC")}, "Bad minute"),
        ({"every": (100, "microseconds")}, "not between"),
        ({"every": (15, "minutes"), "args": "no json"}, "Expecting value"),
        ({"every": (15, "minutes"), "kwargs": "[1]"}, "no dict"),
    )
    def test_what_cannot_be_said_here_says_why(self, *, fields: Any, why: Any) -> None:
        empty_tables()
        assert why in beat_task("odd", **fields).why_not

    def test_the_command_lists_and_creates_once(self) -> None:
        beat_task("nightly", cron=("0", "3", "*", "*", "*", "Europe/Berlin"), kwargs='{"number": 7}')
        beat_task("off", every=(1, "hours"), enabled=False)
        beat_task("stranger", every=(1, "hours"), task="nobody.knows")
        said = run("pulse_import_schedules", "django-celery-beat")
        assert "2 would be created, 1 skipped. Nothing was written" in said
        assert Schedule.objects.count() == 0
        assert "2 created, 1 skipped" in run("pulse_import_schedules", "django-celery-beat", "--yes")
        assert Schedule.objects.get(name="nightly").kwargs == {"number": 7}
        assert Schedule.objects.get(name="off").pause_reason == "disabled in django-celery-beat"
        found = json.loads(run("pulse_import_schedules", "django-celery-beat", "--yes", "--json"))["schedules"]
        assert [one["state"] for one in found] == ["exists", "exists", "skipped"]
        assert "no task is called 'nobody.knows'" in found[2]["why"]


def test_what_is_not_there_is_an_error() -> None:
    with pytest.raises(CommandError, match="There is no"):
        run("pulse_import_schedules", "django-celery-beat")
