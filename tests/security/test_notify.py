"""NOTIFY is open to every role of the database: a forged one costs a look, and there are few looks a second."""

from __future__ import annotations

import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.db import connection

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from pulse_django.worker.listener import MOST_IN_VAIN
from tests.crash.processes import database_url
from tests.crash.workers import LONG_LEASE, Workers, wait_until
from tests.proxy import CountingProxy
from tests.queue.steps import sql
from tests.security import handlers

pytestmark = pytest.mark.usefixtures("pulse_db")

SELDOM = LONG_LEASE | {"POLL_INTERVAL": 30, "TASK_MODULES": ["tests.security.handlers"]}
LOOK, CLAIM = b"WITH RECURSIVE pair", b"SET status = 'RUNNING'"
FLOOD = 10_000
LASTING = 2.0  # seconds in which it is sent
# Each wake-up that is passed on is a look and, ten milliseconds later, a second one.
LOOKS_PER_SECOND = 2 * MOST_IN_VAIN
AT_ONCE = LOOKS_PER_SECOND  # what had been saved up before


@pytest.fixture
def proxy(pulse_db: None) -> Iterator[CountingProxy]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # sockets have little room for paths
        proxy = CountingProxy(Path(folder), connection.settings_dict, LOOK, CLAIM)
        yield proxy
        proxy.close()


def rubbish(count: int) -> list[str]:
    """Payloads of all kinds; equal ones of a transaction would become one."""
    kinds = (
        lambda n: f"default{n}", lambda n: "", lambda n: "default", lambda n: f'{{"task": "os.system", "id": {n}}}',
        lambda n: f"\x01{secrets.token_hex(8)}", lambda n: f"'; DROP TABLE pulse_django_job; --{n}",
        lambda n: f"{n}\n2026-01-01 CRITICAL forged\x1b[2J", lambda n: f"{n}" + "\U0001f4a3" * 1_500,
    )  # fmt: skip
    return [kinds[n % len(kinds)](n) for n in range(count)]


def test_ten_thousand_forged_wake_ups_cause_few_looks_and_no_claim(workers: Workers, proxy: CountingProxy) -> None:
    env = {"DATABASE_URL": database_url(host=proxy.host, port=proxy.port)}
    worker = workers.ready(settings=SELDOM, env=env)
    wait_until(lambda: worker.says("Listening for wake-ups"), lambda: worker.log)
    wait_until(lambda: proxy.counted[LOOK] >= 1)  # the first look of every worker: it is counted here
    time.sleep(0.1)
    looks, began, said = proxy.counted[LOOK], time.monotonic(), rubbish(FLOOD)
    for batch in range(20):
        part = said[batch::20]
        sql("SELECT count(pg_notify('pulse_django', one)) FROM unnest(%s::text[]) AS said (one)", part)
        time.sleep(max(0.0, began + (batch + 1) * LASTING / 20 - time.monotonic()))
    took = time.monotonic() - began
    caused = proxy.counted[LOOK] - looks
    assert 1 <= caused <= AT_ONCE + LOOKS_PER_SECOND * took, f"{caused} looks in {took:.1f} s"
    assert proxy.counted[CLAIM] == 0
    job, enqueued = handlers.innocent.enqueue().id, time.monotonic()
    wait_until(lambda: Job.objects.get(pk=job).status == Status.COMPLETED, patience=5)
    assert time.monotonic() - enqueued < 5, "and a true one is heard beside them, long before the next poll"
    assert worker.exit_code is None
    assert "forged" not in worker.log
    assert "os.system" not in worker.log
