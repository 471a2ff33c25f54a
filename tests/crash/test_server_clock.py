"""The server's clock is set, by an hour or by more than its uptime: dead workers' jobs are recovered all the same."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chaos.clock import Clock, compile_into
from tests.crash.processes import ROOT
from tests.crash.scratch import Scratch, scratch_server
from tests.crash.workers import Workers, wait_until

pytestmark = pytest.mark.usefixtures("pulse_db")

TTL, TICK = 2.0, 0.3
SETTINGS: dict[str, Any] = {"LEASE_TTL": TTL, "HEARTBEAT_INTERVAL": TTL / 3, "WATCHDOG_INTERVAL": TICK}
HOUR = 3600.0
NAP = 12.0
# What the promise says is TTL + tick; the rest is for a machine that is busy with other tests.
SOON = TTL + TICK + 6.0


@pytest.fixture
def clock() -> Iterator[Clock]:
    """The clock of the server, which is started with it."""
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # a server that root starts runs as somebody else
        library = compile_into(Path(folder))
        if library is None:
            pytest.skip("there is no C compiler here, or no Linux: the server's clock cannot be set")
        yield Clock(Path(folder) / "clock", library)


@pytest.fixture
def server(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Scratch]:
    clock.jump_to(-2 * HOUR)
    monkeypatch.setattr("testproject.postgres.EXTRA_ENVIRONMENT", clock.environment())
    with scratch_server(monkeypatch) as server:
        yield server


def uptime(server: Scratch) -> float:
    return float(server.ask("SELECT EXTRACT(epoch FROM clock_timestamp() - pg_postmaster_start_time())")[0][0])


@pytest.mark.parametrize("step", ["an hour ahead", "an hour back", "to the start", "back beyond the start"])
def test_a_step_of_the_servers_clock_delays_no_recovery(
    workers: Workers, server: Scratch, clock: Clock, step: str
) -> None:
    clock.jump_to(0.0)  # two hours after its start
    healthy = workers.ready(
        "--concurrency", "8", "--queues", "default", settings=SETTINGS, env={"DATABASE_URL": server.url}
    )
    mine = server.enqueue("tests.worker.handlers.naps", 4, NAP)
    wait_until(lambda: workers.trace.count("begin").total() == 4)
    victim = workers.ready("--no-watchdog", "--queues", "victims", settings=SETTINGS, env={"DATABASE_URL": server.url})
    its = server.enqueue("tests.worker.handlers.naps", 2, NAP, queue="victims")
    wait_until(lambda: set(its) <= set(workers.trace.count("begin")))
    before = uptime(server)
    steps = {"an hour ahead": HOUR, "an hour back": -HOUR, "to the start": -before, "back beyond the start": -3 * HOUR}
    clock.jump_to(steps[step])
    assert abs(uptime(server) - before - steps[step]) < 5, "the server does not see its clock jump"
    victim.kill()
    lost = "SELECT count(*) FROM pulse_django_attempt WHERE outcome = 'WORKER_LOST' AND job_id = ANY (%s)"
    wait_until(lambda: server.ask(lost, its) == [(len(its),)], lambda: healthy.log, patience=SOON)
    checked = check(server)
    assert ("FAIL clock-stepped" in checked) == (step != "an hour ahead"), checked
    assert "ok   lease-too-long" in checked, checked
    ended = "SELECT count(*) FROM pulse_django_job WHERE status = 'COMPLETED' AND id = ANY (%s)"
    wait_until(lambda: server.ask(ended, mine) == [(len(mine),)], lambda: healthy.log)
    assert [workers.trace.count("begin")[job] for job in mine] == [1] * 4, healthy.log
    healthy.kill()


def check(server: Scratch) -> str:
    command = [sys.executable, "manage.py", "pulse_check", "--all"]
    env = os.environ | {"DATABASE_URL": server.url}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True).stdout
