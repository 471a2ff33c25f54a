"""Workers from before limits do not keep them. Limits hold when the last of those is gone."""

from __future__ import annotations

from itertools import accumulate

import pytest

from tests.crash.workers import wait_until
from tests.upgrades.scene import LONG, Scene
from tests.upgrades.test_upgrades import _UNFINISHED, PATIENCE, in_state, logs, scene, stop

__all__ = ["scene"]  # the fixture
JOBS, ALLOWED = 4, 1
BEFORE_LIMITS = in_state("0012")

_LIMIT = """
INSERT INTO pulse_django_limiter (name, numbers, override) VALUES ('proof', '{}', '{"running": 1}')
"""
_JOBS = """
INSERT INTO pulse_django_job (task, args, lane_key) SELECT %s, '[0.5]', 'proof' FROM generate_series(1, %s)
"""
_RUNS = "SELECT started_at, finished_at FROM pulse_django_ledger WHERE starts_with(worker, %s)"


@pytest.mark.parametrize("scene", BEFORE_LIMITS, indirect=True)
def test_limits_hold_when_the_last_worker_that_does_not_know_them_is_gone(scene: Scene) -> None:
    scene.manage(scene.new, "migrate")
    scene.ask(_LIMIT)
    older = scene.start_worker(scene.old, "old").wait_until_ready()
    scene.ask(_JOBS, LONG, JOBS)
    wait_until(lambda: scene.ask(_UNFINISHED) == [(0,)], logs([older]), PATIENCE)
    assert most_at_once(scene, "old:") > ALLOWED, "or the documentation need not say so"
    newer = scene.start_worker(scene.new, "new").wait_until_ready()
    stop(older)
    scene.ask(_JOBS, LONG, JOBS)
    wait_until(lambda: scene.ask(_UNFINISHED) == [(0,)], logs([newer]), PATIENCE)
    assert most_at_once(scene, "new:") == ALLOWED
    stop(newer)


def most_at_once(scene: Scene, worker: str) -> int:
    edges = sorted(edge for begun, ended in scene.ask(_RUNS, worker) for edge in ((begun, 1), (ended, -1)))
    return max(accumulate(step for _, step in edges))


def test_history_has_code_from_before_limits() -> None:
    assert BEFORE_LIMITS
