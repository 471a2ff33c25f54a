"""A whole worker behind a real transaction pooler: no session of its own, and nothing amiss."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, connections, transaction

from pulse_django.models import Job
from pulse_django.queue.words.states import Status
from testproject.shop import tasks
from tests.crash.processes import database_url
from tests.crash.workers import Workers, outcomes, wait_for, wait_until
from tests.pgbouncer import POOL_SIZE, PgBouncer, needs_pgbouncer
from tests.queue.steps import sql
from tests.worker import handlers
from tests.worker.test_connection_cleanup import handler_thread, session

pytestmark = [pytest.mark.usefixtures("pulse_db"), needs_pgbouncer]


@pytest.fixture
def pooler(pulse_db: None, server: dict[str, Any]) -> Iterator[PgBouncer]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        Path(folder).chmod(0o755)
        pooler = PgBouncer(Path(folder), server)
        yield pooler
        pooler.close()


def test_jobs_run_and_a_killed_child_is_recovered_behind_a_transaction_pooler(
    workers: Workers, pooler: PgBouncer
) -> None:
    env = {"DATABASE_URL": database_url(host=pooler.host, port=pooler.port)}
    before = backends()  # of workers that went: a pooler in front of the tests keeps them
    quick = [tasks.add.enqueue(number, 1).id for number in range(300)]
    slow = handlers.naps.enqueue(1.0).id
    loop = handlers.asks_and_naps_on_the_loop.enqueue(0.1).id
    worker = workers.ready("--concurrency", "4", settings={"LEASE_TTL": 6, "HEARTBEAT_INTERVAL": 0.5}, env=env)
    wait_until(lambda: bool(workers.trace.of(slow, "begin")), lambda: worker.log)
    os.kill(worker.child(), signal.SIGKILL)
    wait_for(Status.COMPLETED, *quick, slow, loop)
    assert outcomes(slow) == ["WORKER_LOST", "SUCCEEDED"]
    wait_until(lambda: worker.says("is there a transaction pooler in between?"), lambda: worker.log)
    wait_for(Status.COMPLETED, tasks.add.enqueue(1, 2).id)
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0
    assert "DuplicatePreparedStatement" not in worker.log
    assert "ERROR" not in worker.log.replace("ERROR pulse_django.worker: Process", ""), worker.log
    assert 0 < len(backends() - before) <= POOL_SIZE, "through the pooler only"


def test_connections_of_handlers_are_kept_behind_a_transaction_pooler(pooler: PgBouncer) -> None:
    """Nothing is prepared there for their reset: the next message may reach another session."""
    settings = {**connection.settings_dict, "HOST": pooler.host, "PORT": str(pooler.port)}

    def connection_of_handler() -> int:
        assert session()
        return id(connection.connection)

    with handler_thread() as thread:
        thread._pool.submit(lambda: setattr(connections["default"], "settings_dict", settings)).result(20)
        assert len({thread.call(connection_of_handler) for _ in range(5)}) == 1


def test_jobs_are_enqueued_behind_a_transaction_pooler(pooler: PgBouncer) -> None:
    """Nothing is prepared there: the next message may reach another session."""
    before = connection.settings_dict
    connection.close()
    connection.settings_dict = {**before, "HOST": pooler.host, "PORT": str(pooler.port)}
    try:
        ids = [tasks.add.enqueue(number, 1).id for number in range(20)]
        with transaction.atomic():
            ids += [tasks.add.enqueue(number, 1).id for number in range(20)]
        assert sql("SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT%%'") == [(0,)]
    finally:
        connection.close()
        connection.settings_dict = before
    assert len(set(ids)) == Job.objects.count() == 40


def backends() -> set[int]:
    asked = "SELECT pid FROM pg_stat_activity WHERE application_name LIKE 'pulse %%' AND datname = current_database()"
    return {pid for (pid,) in sql(asked)}
