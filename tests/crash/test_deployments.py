"""Another deployment adopts the database under a running worker: it does nothing more, until it has it back."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from pulse_django.queue.database.deployments import adopt, owner_of
from tests.crash.workers import Workers, status, wait_for
from tests.worker import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

STAGING: dict[str, Any] = {"DEPLOYMENT": "staging"}


def adopted_by(name: str) -> None:
    with override_settings(PULSE={"DEPLOYMENT": name}):
        adopt("default")


def test_a_worker_stops_acting_when_its_database_is_adopted_and_goes_on_when_it_has_it_back(workers: Workers) -> None:
    worker = workers.ready(settings=STAGING)
    assert owner_of("default") == "staging"
    wait_for("COMPLETED", handlers.naps.enqueue(0).id)
    adopted_by("production")
    whose = "cut off (28000): Database 'default' belongs to deployment 'production', not to 'staging'"
    worker.wait_until_it_says(*(f"{purpose}: {whose}" for purpose in ("claims 1", "watchdog", "heartbeat")))
    left = handlers.naps.enqueue(0).id
    refused = workers.start(settings=STAGING)
    assert refused.wait() == 1
    assert refused.says("pulse_check --adopt")
    assert status(left) == "PENDING"
    adopted_by("staging")
    wait_for("COMPLETED", left)
