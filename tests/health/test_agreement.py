"""Every outlet says the same of the same state: each condition is brought about, and found by all of them."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from pulse_django import conf
from pulse_django.health.conditions import Limits, ask, known, named
from pulse_django.models import Minute
from pulse_django.queue.words.states import Status
from tests.database import empty_tables
from tests.factories import WorkerFactory, make_job, now
from tests.faults import all_faults, each_of
from tests.health.outlets import OURS, SECRET, alerted, by_http, by_metrics, expect_all_to_say, in_json, on_the_board
from tests.health.states import SIMPLE, WITH_AN_END, brought_about, empty_and_vacuum
from tests.queue.steps import sql
from tests.rival import Rival

pytestmark = pytest.mark.usefixtures("vacuumed")

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"


@pytest.fixture
def quickly_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some take minutes or millions of rows: everywhere less is enough."""
    of = Limits.of

    def less(settings: conf.PulseSettings, **others: Any) -> Limits:
        return of(settings, **{"dead_rows": 20} | others)

    monkeypatch.setattr(Limits, "of", less)


def test_every_outlet_names_it(rival: Rival, settings: Any, quickly_found: None) -> None:
    settings.PULSE = {"METRICS_TOKEN": SECRET, "ALERTS": dict.fromkeys(OURS, True), "ALERT_MAIL": False}
    of, page = Limits.of, (DOCS / "reference/conditions.md").read_text()
    with all_faults() as about:
        for name in OURS:
            with about(name), pytest.MonkeyPatch.context() as patch:
                empty_and_vacuum()
                if name == "long-transaction":
                    patch.setattr(
                        Limits, "of", lambda given, **others: of(given, long_transaction=timedelta(), **others)
                    )
                with brought_about(name, rival):
                    checked = in_json("pulse_check", "--all")[0]
                    assert name in checked
                    expect_all_to_say(checked)
                    raised = alerted()
                    assert raised == by_metrics()
                    if name != "minutes-missing":  # over as soon as one is recorded
                        assert name in raised
                assert f"| `{name}` |" in page


def test_every_condition_of_the_catalogue_is_brought_about() -> None:
    assert set(SIMPLE) | set(WITH_AN_END) == set(OURS)


def test_every_page_of_a_remedy_is_there_and_names_the_condition() -> None:
    """By its name an operator searches."""
    assert [one.name for one in known(advice=True) if f"`{one.name}`" not in (DOCS / one.page).read_text()] == []


def lease_over_for(seconds: float) -> None:
    WorkerFactory()
    make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-seconds)))


def due_without_a_worker_for(seconds: float) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(seconds=-seconds)))


def test_neither_a_deploy_nor_an_outage_is_a_problem_too_soon() -> None:
    states = [(lease_over_for, "lease-not-reaped"), (due_without_a_worker_for, "queue-without-worker")]
    with all_faults() as about:
        for (state, name), (seconds, is_wrong) in product(states, [(5, False), (45, False), (61, True), (3_600, True)]):
            with about((name, seconds)):
                empty_tables()
                state(seconds)
                assert ask(named(name), "default").is_clear is not is_wrong


@each_of(True, False, 99.0)
def test_a_threshold_of_alerts_holds_for_every_outlet(settings: Any, *, most: Any) -> None:
    """6,694 dead letters once turned one outlet red, and left the others green."""
    empty_and_vacuum()
    settings.PULSE = {"METRICS_TOKEN": SECRET, "ALERTS": {"dead-letters": most}}
    for _ in range(100):
        make_job(Status.DEAD_LETTERED)
    sql("UPDATE pulse_django_job SET attempts = 0")
    found = most == 99.0
    names = {"dead-letters"} if found else set()
    assert in_json("pulse_status") == in_json("pulse_check") == by_http() == (names, not found)
    assert on_the_board() == names
    assert alerted() == names
    assert Minute.objects.latest("minute").signs["conditions"] == ({"dead-letters": 2} if found else {})
