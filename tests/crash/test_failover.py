"""A primary dies and its standby is promoted, while workers work: they know both by one address of two hosts."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg
import pytest

from chaos.checker import Execution
from chaos.handlers import LOG
from chaos.stage import executions
from testproject.harness.processes import StartedWorker
from tests.cluster import Cluster
from tests.crash.processes import ROOT
from tests.crash.workers import Workers, is_alive, wait_until

RESUMES_WITHIN = 10.0  # seconds from the primary's death
BEFORE, AFTER = 30, 30  # jobs done before it, and after
# Longer than it takes to fail over, so that what resumes does not do so because leases ended.
LONGER: dict[str, object] = {"LEASE_TTL": 6, "HEARTBEAT_INTERVAL": 1}
ENQUEUE = "INSERT INTO pulse_django_job (task, args, kwargs) VALUES (%s, %s, '{}') RETURNING id"

StartCluster = Callable[..., Cluster]


@pytest.fixture
def start_cluster() -> Iterator[StartCluster]:
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:  # a short path: sockets have little room
        Path(folder).chmod(0o755)
        started = []

        def start(**options: bool) -> Cluster:
            cluster = Cluster(Path(folder), **options)
            started.append(cluster)
            cluster.start()
            migrate = [sys.executable, "manage.py", "migrate", "--verbosity", "0"]
            environment = os.environ | {"DATABASE_URL": cluster.primary.url}
            subprocess.run(migrate, cwd=ROOT, env=environment, check=True, timeout=60)
            return cluster

        try:
            yield start
        finally:
            for cluster in started:
                cluster.end()


@contextmanager
def producing(cluster: Cluster) -> Iterator[list[int]]:
    """Enqueue until the block ends, whatever happens to the servers. Only what was answered is in the list."""
    acknowledged: list[int] = []
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            with suppress(psycopg.Error), psycopg.connect(cluster.url(), autocommit=True) as connection:
                while not over.wait(0.01):
                    acknowledged.append(enqueue(connection, "chaos.quick", "[]"))

    producer = threading.Thread(target=produce, daemon=True)
    producer.start()
    try:
        yield acknowledged
    finally:
        over.set()
        producer.join(30)
    assert not producer.is_alive()


def enqueue(connection: psycopg.Connection, task: str, args: str) -> int:
    row = connection.execute(ENQUEUE, [task, args]).fetchone()
    assert row is not None
    return int(row[0])


def started(workers: Workers, cluster: Cluster, folder: Path, **settings: object) -> StartedWorker:
    env = {"DATABASE_URL": cluster.url(), LOG: str(folder / "executions")}
    return workers.ready("--concurrency", "4", settings={"TASK_MODULES": ["chaos.handlers"], **settings}, env=env)


def completed(cluster: Cluster) -> int:
    with suppress(psycopg.OperationalError):
        [(count,)] = cluster.ask("SELECT count(*) FROM pulse_django_job WHERE status = 'COMPLETED'")
        return int(count)
    return 0


def unfinished(cluster: Cluster) -> int:
    [(count,)] = cluster.ask("SELECT count(*) FROM pulse_django_job WHERE status <> 'COMPLETED'")
    return int(count)


def test_a_server_starts_again_after_a_crash_that_left_one_of_its_processes(start_cluster: StartCluster) -> None:
    """PostgreSQL refuses to start while a process of before is attached to its shared memory."""
    cluster = start_cluster(waits_for_standby=False)
    postmaster = int((cluster.primary.data / "postmaster.pid").read_text().split()[0])
    with cluster.primary.connect() as connection:
        [(backend,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
        os.kill(backend, signal.SIGSTOP)  # it does not notice that its postmaster is gone
        os.kill(postmaster, signal.SIGKILL)
        wait_until(lambda: not is_alive(postmaster))
        cluster.kill_primary()
        cluster.start_again(cluster.primary)
    assert cluster.ask("SELECT 1") == [(1,)]


def test_nothing_acknowledged_is_lost_and_work_resumes(
    workers: Workers, start_cluster: StartCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    cluster = start_cluster()
    them = [started(workers, cluster, tmp_path, **LONGER) for _ in range(2)]
    with producing(cluster) as acknowledged:
        wait_until(lambda: completed(cluster) >= BEFORE)
        died_at = time.monotonic()
        cluster.kill_primary()
        cluster.promote()
        [(promoted_at,)] = cluster.ask("SELECT clock_timestamp()")
        done = completed(cluster)
        begun = "SELECT count(*) FROM pulse_django_ledger WHERE started_at > %s"
        wait_until(lambda: cluster.ask(begun, promoted_at) > [(0,)])
        resumed = time.monotonic() - died_at
        wait_until(lambda: completed(cluster) >= done + AFTER)
    # Not the number of those acknowledged: a job may be there though the answer to its INSERT died with the primary.
    wait_until(lambda: unfinished(cluster) == 0, lambda: "\n".join(one.log for one in them), 45)

    record_property("resumed_after_seconds", round(resumed, 2))
    assert resumed < RESUMES_WITHIN
    stored = dict(cluster.ask("SELECT id, result #>> '{}' FROM pulse_django_job"))
    assert set(acknowledged) <= stored.keys()
    ledger = {
        (job, attempt, token, holder)
        for job, attempt, token, holder in cluster.ask("SELECT job_id, number, token, worker FROM pulse_django_ledger")
    }
    ran = executions(tmp_path)
    assert {(one.job, one.attempt, one.token, one.holder) for one in ran} <= ledger, "each was granted, and is known"
    assert len({one.token for one in ran}) == len(ran), "no token was handed out twice"
    assert set(stored.values()) <= {one.id for one in ran}


def test_a_standby_that_was_behind_mints_attempts_again_and_the_holder_still_fences(
    workers: Workers, start_cluster: StartCluster, tmp_path: Path
) -> None:
    """Asynchronous: the claim is lost with the primary, while its handler goes on."""
    cluster = start_cluster(waits_for_standby=False)
    with cluster.primary.connect() as connection:
        job = enqueue(connection, "chaos.slow", "[3.0]")
    wait_until(lambda: knows(cluster, job))
    cluster.stop(cluster.standby)
    worker = started(workers, cluster, tmp_path)
    wait_until(lambda: len(executions(tmp_path)) == 1, lambda: worker.log)

    cluster.kill_primary()
    cluster.start_again(cluster.standby)
    cluster.promote()
    wait_until(lambda: completed(cluster) == 1, lambda: worker.log)
    wait_until(lambda: all(one.ended == "end" for one in executions(tmp_path)), lambda: worker.log)

    first, second = executions(tmp_path)
    assert both_ended_and_overlapped(first, second)
    assert (first.job, first.attempt) == (second.job, second.attempt) == (job, 1), "the claim was forgotten"
    assert first.holder != second.holder
    [(result, attempts)] = cluster.ask("SELECT result #>> '{}', attempts FROM pulse_django_job")
    assert (result, attempts) == (second.id, 1), "the forgotten run could not speak for the one that is known"
    wait_until(lambda: worker.says("lease lost"), lambda: worker.log)


def knows(cluster: Cluster, job: int) -> bool:
    with cluster.standby.connect() as connection:
        return connection.execute("SELECT 1 FROM pulse_django_job WHERE id = %s", [job]).fetchone() is not None


def both_ended_and_overlapped(first: Execution, second: Execution) -> bool:
    return first.ended_at is not None and second.ended_at is not None and first.ended_at > second.began_at
