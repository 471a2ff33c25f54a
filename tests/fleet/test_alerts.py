"""Alerts: told once per incident, by whoever wrote the minute, and never at the cost of recovery."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta
from threading import Event
from typing import Any

import django
import pytest
from django.core import mail

from pulse_django.fleet import alerts
from pulse_django.models import Minute
from pulse_django.signals import alert_ended, alert_raised
from pulse_django.words.states import Status
from pulse_django.words.thresholds import THRESHOLDS, FleetFacts, crossed
from tests.factories import make_job, now
from tests.protocol.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

ADMINS: list[Any] = ["ada@example.com"] if django.VERSION >= (6, 0) else [("Ada", "ada@example.com")]


@pytest.fixture
def told() -> Iterator[list[tuple[str, str]]]:
    """What was told by signal, in order."""
    heard: list[tuple[str, str]] = []

    def raised(name: str, **facts: Any) -> None:
        heard.append(("raised", name))

    def ended(name: str, **facts: Any) -> None:
        heard.append(("ended", name))

    alert_raised.connect(raised)
    alert_ended.connect(ended)
    yield heard
    alert_raised.disconnect(raised)
    alert_ended.disconnect(ended)


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.PULSE = {"ALERTS": {"OLDEST_DUE": 60, "DEAD_LETTERS": 2}}
    settings.ADMINS = ADMINS


def minutes() -> list[datetime]:
    [(latest,)] = sql("SELECT date_trunc('minute', clock_timestamp()) - interval '2 min'")
    return [latest - timedelta(minutes=back) for back in (3, 2, 1, 0)]


def write(minute: datetime, **options: Any) -> None:
    Minute.objects.write(minute, **options)
    alerts.look("default", minute)
    alerts.finish()


def test_an_incident_is_told_when_it_begins_and_when_it_is_over(
    told: list[tuple[str, str]], caplog: pytest.LogCaptureFixture
) -> None:
    first, second, third, fourth = minutes()
    write(first)
    assert told == []
    job = make_job(queue="mail", next_run_at=now(timedelta(minutes=-5)))
    with caplog.at_level(logging.INFO, "pulse_django.alerts"):
        write(second)
        write(third)
        sql("DELETE FROM pulse_django_job WHERE id = %s", job.pk)
        write(fourth)
    assert told == [("raised", "OLDEST_DUE"), ("ended", "OLDEST_DUE")]
    levels = [(record.levelname, record.getMessage()[:17]) for record in caplog.records]
    assert levels == [("ERROR", "Alert OLDEST_DUE:"), ("INFO", "Alert OLDEST_DUE ")]
    assert len(mail.outbox) == 1
    assert mail.outbox[0].to == ["ada@example.com"]
    assert "a job has been due for" in mail.outbox[0].body


def test_another_watchdog_goes_on_with_the_incident(told: list[tuple[str, str]]) -> None:
    """What is open stands in the minutes, not in a process."""
    first, second, *_ = minutes()
    for number in range(3):
        make_job(Status.DEAD_LETTERED, finished_at=first + timedelta(seconds=number))
    write(first)
    assert Minute.objects.get(minute=first).signs["alerts"] == {"DEAD_LETTERS": 3.0}
    write(second)
    assert told == [("raised", "DEAD_LETTERS")]


def test_a_paused_queue_is_no_incident(told: list[tuple[str, str]]) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(minutes=-5)))
    sql("INSERT INTO pulse_django_queue (name, paused_at, pause_reason) VALUES ('mail', clock_timestamp(), '')")
    write(minutes()[0])
    assert told == []


def test_mail_can_be_left_out(settings: Any, told: list[tuple[str, str]]) -> None:
    settings.PULSE = {"ALERTS": {"OLDEST_DUE": 60}, "ALERT_MAIL": False}
    make_job(next_run_at=now(timedelta(minutes=-5)))
    write(minutes()[0])
    assert told == [("raised", "OLDEST_DUE")]
    assert mail.outbox == []


def test_without_thresholds_nothing_is_looked_at(settings: Any, told: list[tuple[str, str]]) -> None:
    settings.PULSE = {}
    make_job(next_run_at=now(timedelta(minutes=-5)))
    write(minutes()[0])
    assert told == []
    assert "alerts" not in Minute.objects.get().signs


def test_a_mail_server_that_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = Event(), Event()

    def hang(*args: Any) -> None:
        asked.set()
        answered.wait(20)

    monkeypatch.setattr(alerts, "mail_admins", hang)
    make_job(next_run_at=now(timedelta(minutes=-5)))
    minute = minutes()[0]
    Minute.objects.write(minute)
    alerts.look("default", minute)  # returns although nobody has answered
    assert asked.wait(5)
    assert not answered.is_set()
    answered.set()
    alerts.finish()


def test_a_mail_that_cannot_be_sent_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, told: list[tuple[str, str]]
) -> None:
    def fail(*args: Any) -> None:
        raise OSError("connection refused")

    monkeypatch.setattr(alerts, "mail_admins", fail)
    make_job(next_run_at=now(timedelta(minutes=-5)))
    write(minutes()[0])
    assert told == [("raised", "OLDEST_DUE")]
    assert "Sending mail to the admins failed" in caplog.text


WELL = FleetFacts(oldest_due=0, dead_letters=0, expirations=0, unserved_queues=0, unreaped=0, orphans=0)


@pytest.mark.parametrize("name", THRESHOLDS)
def test_every_threshold_is_crossed_beyond_what_is_allowed_and_not_at_it(name: str) -> None:
    facts = FleetFacts(oldest_due=5, dead_letters=5, expirations=5, unserved_queues=5, unreaped=5, orphans=5)
    assert crossed(facts, {name: 5}) == []
    [one] = crossed(facts, {name: 4})
    assert "5" in one.says
    assert "4" in one.says
    assert crossed(WELL, {name: 0}) == []
