"""Status, health, check and alerts say the same of the same state, on either side of each threshold."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from pulse_django import conf
from pulse_django.fleet import alerts, snapshot_queries
from pulse_django.fleet.conditions import ask, named
from pulse_django.fleet.diagnosis import troubles
from pulse_django.fleet.probes import probe
from pulse_django.words.states import Status
from pulse_django.words.thresholds import UNREAPED, UNSERVED, crossed
from tests.factories import WorkerFactory, make_job, now

pytestmark = pytest.mark.usefixtures("pulse_db")


def lease_over_for(seconds: float) -> None:
    WorkerFactory()
    make_job(Status.RUNNING, lease_until=now(timedelta(seconds=-seconds)))


def due_without_a_worker_for(seconds: float) -> None:
    make_job(queue="mail", next_run_at=now(timedelta(seconds=-seconds)))


@pytest.mark.parametrize(
    ("state", "name", "threshold"),
    [(lease_over_for, UNREAPED, "UNREAPED"), (due_without_a_worker_for, UNSERVED, "UNSERVED_QUEUES")],
)
@pytest.mark.parametrize(("seconds", "is_wrong"), [(5, False), (45, False), (61, True), (3_600, True)])
def test_all_outlets_agree(
    state: Callable[[float], None], name: str, threshold: str, seconds: float, is_wrong: bool
) -> None:
    state(seconds)
    finding = ask(named(name), "default")
    assert finding.error == ""
    minute = {"queues": {}, "broken": {name: len(finding.subjects)}}
    said = {
        "check": not finding.holds,
        "status": bool(troubles(snapshot_queries.glance("default"), conf.current())),
        "health": threshold in {one.name for one in probe("default", {"OLDEST_DUE": 1e9}).crossings},
        "alerts": threshold in {one.name for one in crossed(alerts.facts_of([minute]), {threshold: 0})},
    }
    assert set(said.values()) == {is_wrong}, said
