"""Workers from before workflows never claim what waits, and free nothing. A newer one frees it."""

from __future__ import annotations

import pytest

from tests.crash.workers import wait_until
from tests.upgrades.scene import LONG, Scene
from tests.upgrades.test_upgrades import PATIENCE, in_state, logs, scene, stop

__all__ = ["scene"]  # the fixture
BEFORE_WORKFLOWS = in_state("0019")

# A needs nothing and B needs A; both are in a batch, whose callback waits.
_WORKFLOW = """
WITH batch AS (
    INSERT INTO pulse_django_batch (name, sealed_at, added) VALUES ('proof', clock_timestamp(), 2) RETURNING id
),
a AS (
    INSERT INTO pulse_django_job_hot (task, args, batch_id, awaited) SELECT %(task)s, '[0.1]', id, true FROM batch
    RETURNING id
),
b AS (
    INSERT INTO pulse_django_job_hot (task, args, batch_id, status) SELECT %(task)s, '[0.2]', id, 'WAITING' FROM batch
    RETURNING id
),
callback AS (
    INSERT INTO pulse_django_job_hot (task, args, status) VALUES (%(task)s, '[0.3]', 'WAITING') RETURNING id
),
needs AS (
    INSERT INTO pulse_django_dependency (job_id, needs, needs_batch)
    SELECT b.id, a.id, NULL::bigint FROM a, b UNION ALL SELECT callback.id, NULL, batch.id FROM callback, batch
)
SELECT a.id, b.id, callback.id FROM a, b, callback
"""
_STATUS = "SELECT status FROM pulse_django_job WHERE id = %s"


@pytest.mark.parametrize("scene", BEFORE_WORKFLOWS, indirect=True)
def test_what_an_older_worker_ended_is_followed_by_a_newer_one(scene: Scene) -> None:
    scene.manage(scene.new, "migrate")
    older = scene.start_worker(scene.old, "old").wait_until_ready()
    [(first, second, callback)] = scene.ask(_WORKFLOW.replace("%(task)s", f"'{LONG}'"))
    wait_until(lambda: scene.ask(_STATUS, first) == [("COMPLETED",)], logs([older]), PATIENCE)
    assert scene.ask(_STATUS, second) == scene.ask(_STATUS, callback) == [("WAITING",)]
    newer = scene.start_worker(scene.new, "new").wait_until_ready()
    wait_until(lambda: scene.ask(_STATUS, second) == [("COMPLETED",)], logs([older, newer]), PATIENCE)
    stop(older)  # it may have ended the second one, too, and its watchdog may take the turns that look for such jobs
    wait_until(lambda: scene.ask(_STATUS, callback) == [("COMPLETED",)], logs([newer]), 3 * PATIENCE)
    stop(newer)


def test_history_has_code_from_before_workflows() -> None:
    assert BEFORE_WORKFLOWS
