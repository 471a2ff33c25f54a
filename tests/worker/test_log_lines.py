"""The line of a run says what comes next and when, and where the error is."""

from __future__ import annotations

import logging
import re
import signal

import pytest

from pulse_django.queue.words.states import Status
from tests.crash.workers import QUICK, Workers, wait_for
from tests.worker import handlers


@pytest.mark.usefixtures("pulse_db")
def test_a_failed_run_says_when_the_next_begins_and_which_line_failed(workers: Workers) -> None:
    job = handlers.fails_twice.enqueue().id
    worker = workers.ready()
    wait_for(Status.DEAD_LETTERED, job)
    worker.signal(signal.SIGTERM)  # it writes what is left before it ends
    worker.wait()
    log = worker.log
    [first] = re.findall(rf"job {job} .* attempt 1: .*", log)
    assert re.search(r"attempt 1: ended after \d+ ms; RETRYING, due in 0\.0\d+ s: RuntimeError: no luck", first)
    assert re.search(r'\("\S+/handlers\.py", line \d+, in fails_twice\)$', first)
    [last] = re.findall(rf"job {job} .* attempt 2: .*", log)
    assert re.search(r"attempt 2: DEAD_LETTERED in \d+ ms: RuntimeError: no luck", last)
    assert "ERROR" in log
    after = log.partition(last)[2].splitlines()
    assert after[1].strip() == "Traceback (most recent call last):", "a dead letter has its traceback in the log"
    assert logging.getLevelName(logging.ERROR) in log
    assert QUICK["RETRY_BACKOFF_CAP"] == 0.05
