"""``pulse_dev`` runs the web server and a worker, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest

from testproject.harness.processes import StartedProcess
from tests.crash.processes import ROOT, environment
from tests.crash.workers import QUICK, Workers, wait_until

COMMAND = [sys.executable, "manage.py", "pulse_dev", "127.0.0.1:0"]


@pytest.fixture
def started(workers: Workers) -> StartedProcess:
    env = environment(PULSE=json.dumps(QUICK), DEBUG="1")
    process = workers.start_worker("dev", COMMAND, env, cwd=ROOT)
    process.wait_until_it_says("web  | ", "development server at http", "jobs | ", " is ready")
    return process


def test_it_ends_both_on_ctrl_c(started: StartedProcess) -> None:
    started.family()
    started.signal(signal.SIGINT)
    assert started.wait() == 0
    assert "Traceback" not in started.log
    wait_until(lambda: not started.left_behind(), started.left_behind)


@pytest.mark.parametrize(("place", "number", "code"), [(0, signal.SIGTERM, 0), (1, signal.SIGKILL, 1)])
def test_it_ends_when_one_ends(started: StartedProcess, place: int, number: int, code: int) -> None:
    server_and_worker = sorted(started.family()[1:3])
    os.kill(server_and_worker[place], number)
    assert started.wait() == code
    wait_until(lambda: not started.left_behind(), started.left_behind)


def test_it_is_for_development(workers: Workers) -> None:
    process = workers.start_worker("dev", COMMAND, environment(DEBUG="0"), cwd=ROOT)
    process.expect_exit(1)
    assert "requires DEBUG = True" in process.log
