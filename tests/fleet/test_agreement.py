"""Every outlet says the same of the same state: each condition is brought about, and found by all of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client
from django.urls import reverse

from pulse_django import conf
from pulse_django.exporters import readings
from pulse_django.fleet import alerts
from pulse_django.fleet.conditions import Limits, ask, known, named
from pulse_django.models import Minute
from pulse_django.signals import alert_raised
from pulse_django.words.states import Status
from pulse_django.words.vital_signs import CONDITIONS
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.minute_recorder import MinuteRecorder
from tests.factories import WorkerFactory, make_job, now
from tests.fleet.states import SIMPLE, WITH_AN_END, brought_about
from tests.protocol.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("vacuumed")

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
OURS = {one.name: one for one in known()}
TOKEN = {"Authorization": "Bearer a-long-secret"}


def run(command: str, *flags: str) -> tuple[str, bool]:
    """Return what a command printed, and whether it failed."""
    out = StringIO()
    try:
        call_command(command, *flags, stdout=out, no_color=True)
    except CommandError:
        return out.getvalue(), True
    except SystemExit as ended:
        return out.getvalue(), ended.code != 0
    return out.getvalue(), False


def in_json(command: str, *flags: str) -> tuple[set[str], bool]:
    out, _ = run(command, *flags, "--json")
    said = json.loads(out)
    return {one["name"] for one in said["conditions"] if not one["is_clear"]}, said["is_well"]


def in_text(command: str, *flags: str) -> set[str]:
    """Return the conditions that the text of a command names. A line of one that is clear begins with ok."""
    lines = [line for line in run(command, *flags)[0].splitlines() if not line.startswith("ok ")]
    return {name for name in OURS if any(f"{name} (" in line or f"{name}: " in line for line in lines)}


def by_http() -> tuple[set[str], bool]:
    answer = Client().get("/health", headers=TOKEN)
    said = answer.json()
    assert (answer.status_code == 200) is said["is_well"]
    return {one["name"] for one in said["conditions"]}, said["is_well"]


def on_the_board() -> set[str]:
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    page = client.get(reverse("admin:pulse_django_board_changelist")).content.decode()
    User.objects.all().delete()
    return {name for name in OURS if f"<strong>{name}</strong>" in page}


def by_doctor() -> set[str]:
    advices = json.loads(run("pulse_doctor", "--json")[0])
    return {advice["topic"] for advice in advices} & set(OURS)


def alerted() -> set[str]:
    """Record a minute as a watchdog does."""
    heard: set[str] = set()

    def raised(name: str, **facts: Any) -> None:
        heard.add(name)

    alert_raised.connect(raised)
    recorder = MinuteRecorder(GuardedConnection("default", "minutes"))
    try:
        recorder.write()
        alerts.finish()
    finally:
        alert_raised.disconnect(raised)
        recorder.database.hang_up()
    return heard


def by_metrics() -> set[str]:
    return {reading.labels[0] for reading in readings.read("default") if reading.sign is CONDITIONS}


@pytest.fixture
def quickly_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some take minutes or millions of rows: everywhere less is enough."""
    of = Limits.of

    def less(settings: conf.PulseSettings, **others: Any) -> Limits:
        return of(settings, **{"dead_rows": 20} | others)

    monkeypatch.setattr(Limits, "of", less)


@pytest.mark.parametrize("name", OURS)
def test_every_outlet_names_it(
    name: str, rival: Rival, settings: Any, monkeypatch: pytest.MonkeyPatch, quickly_found: None
) -> None:
    settings.PULSE = {"METRICS_TOKEN": "a-long-secret", "ALERTS": dict.fromkeys(OURS, True), "ALERT_MAIL": False}
    if name == "long-transaction":
        of = Limits.of
        monkeypatch.setattr(Limits, "of", lambda given, **others: of(given, long_transaction=timedelta(), **others))
    with brought_about(name, rival):
        checked, is_well = in_json("pulse_watchdog", "--check")
        assert name in checked
        assert is_well is not any(OURS[one].severity.is_problem for one in checked)
        said = {
            "check": checked,
            "check, in words": in_text("pulse_watchdog", "--check"),
            "status": in_json("pulse_status")[0],
            "status, in words": in_text("pulse_status"),
            "health": in_json("pulse_health")[0],
            "health, in words": in_text("pulse_health"),
            "health by HTTP": by_http()[0],
            "board": on_the_board(),
            "doctor": by_doctor(),
        }
        assert {outlet: names for outlet, names in said.items() if names != checked} == {}
        verdicts = {in_json("pulse_status")[1], in_json("pulse_health")[1], by_http()[1]}
        assert verdicts == {is_well}
        assert run("pulse_watchdog", "--check")[1] is run("pulse_health")[1] is not is_well
        raised = alerted()
        assert raised == by_metrics()
        if name != "minutes-missing":  # over as soon as one is recorded
            assert name in raised
    assert f"| `{name}` |" in (DOCS / "reference/conditions.md").read_text()


def test_every_condition_of_the_catalogue_is_brought_about() -> None:
    assert set(SIMPLE) | set(WITH_AN_END) == set(OURS)


def test_every_page_of_a_remedy_is_there_and_names_the_condition() -> None:
    """By its name an operator searches."""
    assert [one.name for one in known() if f"`{one.name}`" not in (DOCS / one.page).read_text()] == []


def lease_over_for(seconds: float) -> None:
    WorkerFactory()
    make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-seconds)))


def due_without_a_worker_for(seconds: float) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(seconds=-seconds)))


@pytest.mark.parametrize(
    ("state", "name"), [(lease_over_for, "lease-not-reaped"), (due_without_a_worker_for, "queue-without-worker")]
)
@pytest.mark.parametrize(("seconds", "is_wrong"), [(5, False), (45, False), (61, True), (3_600, True)])
def test_neither_a_deploy_nor_an_outage_is_a_problem_too_soon(
    state: Callable[[float], None], name: str, seconds: float, is_wrong: bool
) -> None:
    state(seconds)
    assert ask(named(name), "default").is_clear is not is_wrong


@pytest.mark.parametrize("most", [True, False, 99.0])
def test_a_threshold_of_alerts_holds_for_every_outlet(settings: Any, most: bool | float) -> None:
    """6,694 dead letters once turned one outlet red, and left the others green."""
    settings.PULSE = {"METRICS_TOKEN": "a-long-secret", "ALERTS": {"dead-letters": most}}
    for _ in range(100):
        make_job(Status.DEAD_LETTERED)
    sql("UPDATE pulse_django_job SET attempts = 0")
    found = most == 99.0
    names = {"dead-letters"} if found else set()
    assert in_json("pulse_status") == in_json("pulse_health") == by_http() == (names, not found)
    assert on_the_board() == names
    assert alerted() == names
    assert Minute.objects.latest("minute").signs["conditions"] == ({"dead-letters": 2} if found else {})
