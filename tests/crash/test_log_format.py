"""A worker that logs JSON, in a project that configures no logging."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from datetime import timedelta

import pytest

from pulse_django import task
from pulse_django.queue.words.states import Status
from tests.crash.processes import ROOT, environment
from tests.crash.workers import Workers, wait_for
from tests.factories import make_job, now
from tests.worker.handlers import registered

pytestmark = pytest.mark.usefixtures("pulse_db")

LINE_FEED = "first\nsecond"


@task(name="log_format.warns")
def warns() -> None:
    logging.getLogger("shop").warning(LINE_FEED)


def test_every_line_of_a_worker_and_its_handlers_is_an_object(workers: Workers) -> None:
    modules = ["tests.worker.handlers", "tests.crash.test_log_format"]
    worker = workers.ready("--log-format", "json", settings={"TASK_MODULES": modules})
    dies, says = registered("thread.raises").enqueue("ValueError").id, warns.enqueue().id
    wait_for(Status.DEAD_LETTERED, dies)
    wait_for(Status.COMPLETED, says)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    lines = [json.loads(line) for line in worker.log.splitlines()]
    [dead] = [line for line in lines if line.get("job_id") == int(dies) and line["level"] == "ERROR"]
    assert (dead["logger"], dead["task"], dead["outcome"]) == ("pulse_django.jobs", "thread.raises", "FAILED")
    assert dead["traceback"].startswith("Traceback")
    [done] = [line for line in lines if line.get("job_id") == int(says)]
    assert (done["attempt"], done["level"]) == (1, "INFO")
    assert [line["message"] for line in lines if line["logger"] == "shop"] == [LINE_FEED]


def test_a_watchdog_logs_it_too() -> None:
    expired = make_job(Status.RUNNING, lease_until=now() - timedelta(minutes=1))
    command = [sys.executable, "manage.py", "pulse_watchdog", "--once", "--log-format", "json"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=True, timeout=60)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert any(line["logger"].startswith("pulse_django") and str(expired.pk) in line["message"] for line in lines)
