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

from pulse_django.health import alerts
from pulse_django.health.conditions import Condition, Finding, Severity, Subject, Verdict, ask_all
from pulse_django.metrics.minute_recorder import noted
from pulse_django.models import Minute
from pulse_django.queue.words.states import Status
from pulse_django.signals import alert_ended, alert_raised
from tests.factories import make_job, now
from tests.queue.steps import sql

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
    settings.PULSE = {"ALERTS": {"dead-letters": 2}}
    settings.ADMINS = ADMINS


def minutes() -> list[datetime]:
    [(latest,)] = sql("SELECT date_trunc('minute', clock_timestamp()) - interval '2 min'")
    return [latest - timedelta(minutes=back) for back in (3, 2, 1, 0)]


def write(minute: datetime, **options: Any) -> None:
    Minute.objects.write(minute, **options)
    alerts.update("default", minute, ask_all("default"))
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
    assert told == [("raised", "queue-without-worker"), ("ended", "queue-without-worker")]
    levels = [(record.levelname, record.getMessage().split(":")[0]) for record in caplog.records]
    assert levels == [
        ("ERROR", "Alert queue-without-worker (stuck)"),
        ("INFO", "Alert queue-without-worker is over"),
    ]
    assert len(mail.outbox) == 1
    assert mail.outbox[0].to == ["ada@example.com"]
    body = mail.outbox[0].body
    assert "queue-without-worker (stuck): mail: due for 00:05:0" in body
    assert "Start a worker for the queue" in body


def test_another_watchdog_goes_on_with_the_incident(told: list[tuple[str, str]]) -> None:
    """What is open stands in the minutes, not in a process."""
    first, second, *_ = minutes()
    for number in range(3):
        make_job(Status.DEAD_LETTERED, attempts=0, finished_at=first + timedelta(seconds=number))
    write(first)
    assert Minute.objects.get(minute=first).signs["alerts"] == {"dead-letters": ["queue default", "task tests.add"]}
    write(second)
    assert told == [("raised", "dead-letters")]


def test_a_paused_queue_is_no_incident(told: list[tuple[str, str]]) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(minutes=-5)))
    sql("INSERT INTO pulse_django_pause (queue) VALUES ('mail')")
    write(minutes()[0])
    assert told == []


def test_problems_raise_alerts_and_risks_do_not_unless_the_setting_says_so_and_mail_can_be_left_out(
    settings: Any, told: list[tuple[str, str]]
) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(minutes=-5)))
    make_job(queue="paused", next_run_at=now(timedelta(minutes=-5)))
    sql("INSERT INTO pulse_django_pause (queue) VALUES ('paused')")
    first, second, third, _ = minutes()
    settings.PULSE = {"ALERTS": {"queue-without-worker": False}}
    write(first)
    assert told == []
    settings.PULSE = {"ALERT_MAIL": False}
    write(second)
    assert told == [("raised", "queue-without-worker")]
    assert mail.outbox == []
    settings.PULSE = {"ALERTS": {"paused-backlog": True}}
    write(third)
    assert told[1:] == [("raised", "paused-backlog")]


def test_an_incident_that_cannot_be_checked_is_not_over(told: list[tuple[str, str]]) -> None:
    first, second, third, _ = minutes()
    one = condition()
    found, unknown = Finding(condition=one, subjects=[Subject(1, "x")]), Finding(condition=one, error="timeout")
    for minute, answer in ((first, found), (second, unknown), (third, found)):
        say(minute, answer)
    assert told == [("raised", "a")]


def say(minute: datetime, *answers: Finding) -> None:
    """Record a minute with these answers."""
    Minute.objects.write(minute)
    verdict = Verdict(answers)
    Minute.objects.note(minute, noted(verdict))
    alerts.update("default", minute, verdict)
    alerts.finish()


def condition(name: str = "a") -> Condition:
    return Condition(
        name=name, severity=Severity.STUCK, says="", means="", to_do="", sql="SELECT 1, '' LIMIT %(limit)s"
    )


def test_what_cannot_be_checked_for_two_minutes_is_an_incident(told: list[tuple[str, str]]) -> None:
    first, second, third, fourth = minutes()
    unknown = Finding(condition=condition(), error="permission denied")
    say(first, unknown)
    assert told == [], "one minute may be a lock"
    say(second, unknown)
    say(third, unknown)
    assert told == [("raised", "a")]
    say(fourth, Finding(condition=condition()))
    assert told[1:] == [("ended", "a")]


def test_a_queue_or_task_that_joins_an_incident_is_told_and_a_job_is_not(told: list[tuple[str, str]]) -> None:
    first, second, third, fourth = minutes()
    say(first, Finding(condition=condition(), subjects=[Subject("mail", ""), Subject(7, "")]))
    say(second, Finding(condition=condition(), subjects=[Subject("mail", ""), Subject(8, ""), Subject(9, "")]))
    assert told == [("raised", "a")]
    say(third, Finding(condition=condition(), subjects=[Subject("mail", ""), Subject("reports", ""), Subject(9, "")]))
    say(fourth, Finding(condition=condition(), subjects=[Subject("reports", "")]))
    assert told == [("raised", "a"), ("raised", "a")]


def test_what_is_not_alerted_any_more_or_unknown_here_does_not_end(told: list[tuple[str, str]], settings: Any) -> None:
    first, second, third, fourth = minutes()
    found = Finding(condition=condition(), subjects=[Subject("mail", "")])
    say(first, found)
    say(second)  # a process without the app that asks it
    say(third, found)
    settings.PULSE = {"ALERTS": {"a": False}}
    say(fourth, found)
    assert told == [("raised", "a")]


def test_a_minute_of_another_shape_is_no_incident(told: list[tuple[str, str]]) -> None:
    first, second, *_ = minutes()
    Minute.objects.create(minute=first, signs={"alerts": [5]})
    make_job(next_run_at=now(timedelta(minutes=-5)))
    write(second)
    assert told == [("raised", "queue-without-worker")]


def test_a_mail_server_that_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = Event(), Event()

    def hang(*args: Any) -> None:
        asked.set()
        answered.wait(20)

    monkeypatch.setattr(alerts, "mail_admins", hang)
    make_job(next_run_at=now(timedelta(minutes=-5)))
    minute = minutes()[0]
    Minute.objects.write(minute)
    alerts.update("default", minute, ask_all("default"))  # returns although the mail server has not answered
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
    assert told == [("raised", "queue-without-worker")]
    assert "Sending an alert by mail to the admins failed" in caplog.text
