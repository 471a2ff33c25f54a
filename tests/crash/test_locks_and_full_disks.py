"""The database answers and does not let anybody write: a locked table, a locked row, a full disk. It costs no run."""

from __future__ import annotations

import logging
import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pulse_django.models import Attempt
from pulse_django.queue.words.states import Status
from testproject.harness.processes import StartedWorker
from tests.crash.processes import database_url
from tests.crash.scratch import Scratch, scratch_server
from tests.crash.workers import Workers, wait_for, wait_until
from tests.worker import handlers

logger = logging.getLogger(__name__)
pytestmark = pytest.mark.usefixtures("pulse_db")

TTL = 2.0
SETTINGS: dict[str, Any] = {"LEASE_TTL": TTL, "HEARTBEAT_INTERVAL": TTL / 3, "WATCHDOG_INTERVAL": 0.3}
LOCKED_FOR = 3 * TTL
HEALTHY = 8
COUNTS = "it counts connections by the names that they gave the server"


class Witness:
    """Counts the connections of a database, every few milliseconds, over one of its own."""

    def __init__(self, url: str) -> None:
        self.most: Counter[str] = Counter()  # by application, what waited for a lock at a time
        self.connections: list[int] = []
        self._connection = psycopg.connect(url, autocommit=True, application_name="witness")
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def look(self) -> Counter[str]:
        """Note how many connections there are, and who waits."""
        rows = self._connection.execute(
            "SELECT application_name, COALESCE(wait_event_type, '') FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND application_name <> 'witness'"
            " AND datname = current_database()"
        ).fetchall()
        self.connections.append(len(rows))
        return Counter(name for name, waits in rows if waits == "Lock")

    def _watch(self) -> None:
        while not self._over.wait(0.02):
            self.most |= self.look()

    @contextmanager
    def watching(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()
            self._connection.close()


@contextmanager
def locked(url: str, statement: str, *params: Any) -> Iterator[None]:
    with psycopg.connect(url, application_name="locker") as locker:
        locker.execute(statement, params)
        yield
        locker.rollback()


@pytest.mark.session(COUNTS)
def test_a_locked_table_costs_neither_connections_nor_runs(workers: Workers) -> None:
    _lock_the_table(workers, SETTINGS, LOCKED_FOR)


@pytest.mark.session(COUNTS)
@pytest.mark.parametrize("ttl", [2.0, 30.0])
def test_a_table_that_is_locked_for_long_costs_neither_connections_nor_runs(workers: Workers, ttl: float) -> None:
    """PULSE_PROOF_SECONDS says for how long; what was measured with 90 stands in docs/explanation/proof.md."""
    settings = {"LEASE_TTL": ttl, "HEARTBEAT_INTERVAL": ttl / 3, "WATCHDOG_INTERVAL": min(10.0, ttl / 4)}
    _lock_the_table(workers, settings, float(os.environ.get("PULSE_PROOF_SECONDS", "15")))


def _lock_the_table(workers: Workers, settings: dict[str, Any], seconds: float) -> None:
    worker = workers.ready("--concurrency", str(HEALTHY), settings=settings)
    jobs = [handlers.naps.enqueue(seconds + 2).id for _ in range(HEALTHY)]
    wait_until(lambda: workers.trace.count("begin").total() == HEALTHY)
    witness = Witness(database_url())
    witness.look()
    with witness.watching():
        with locked(database_url(), "LOCK TABLE pulse_django_job IN ACCESS EXCLUSIVE MODE"):
            clients = _come_and_go(seconds)
        wait_for(Status.COMPLETED, *jobs)
    most = max(witness.connections)
    logger.info("%d clients, %d connections before, %d at most", clients, witness.connections[0], most)
    assert most <= witness.connections[0] + 2, worker.log
    waiting = {name: most for name, most in witness.most.items() if name.startswith("pulse ")}
    assert waiting, "nothing waited: was the table locked?"
    assert set(waiting.values()) == {1}, "a line has one statement waiting on the server"
    assert_ran_once(jobs, worker)


def _come_and_go(seconds: float) -> int:
    """Connect as others do, for as long as the misfortune lasts. One that is refused raises."""
    until, clients = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        with psycopg.connect(database_url(), application_name="witness") as client:
            client.execute("SELECT 1")
        clients += 1
        time.sleep(0.25)  # between two of them
    return clients


def test_a_row_that_somebody_locks_for_longer_than_a_lease_costs_no_run(workers: Workers) -> None:
    """Forty rows, and a watchdog that looks thirty times a second."""
    many = 40
    worker = workers.ready("--concurrency", str(many), settings=SETTINGS | {"WATCHDOG_INTERVAL": 0.03})
    jobs = [handlers.naps.enqueue(12).id for _ in range(many)]
    wait_until(lambda: workers.trace.count("begin").total() == many)
    for _ in range(3):
        with locked(database_url(), "SELECT FROM pulse_django_job WHERE status = 'RUNNING' FOR UPDATE"):
            time.sleep(1.2 * TTL)  # the length of the misfortune
        time.sleep(0.5)  # between two of them
    wait_for(Status.COMPLETED, *jobs)
    assert_ran_once(jobs, worker)


def test_a_server_that_takes_no_writes_for_three_leases_costs_no_run(
    workers: Workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch_server(monkeypatch) as server:

        def read_only(value: str) -> None:
            server.ask(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            server.ask("SELECT pg_reload_conf()")

        def again() -> None:
            with psycopg.connect(server.url, autocommit=True) as connection:
                connection.execute("SET default_transaction_read_only = off")
                connection.execute("ALTER SYSTEM RESET default_transaction_read_only")
                connection.execute("SELECT pg_reload_conf()")

        _writes_fail(workers, server, lambda: read_only("on"), again, says="25006")


@pytest.mark.parametrize("ttl", [4.0, 10.0])
def test_a_full_disk_costs_no_run(workers: Workers, monkeypatch: pytest.MonkeyPatch, ttl: float) -> None:
    with small_disk() as disk, scratch_server(monkeypatch) as server, psycopg.connect(server.url) as report:
        folder = disk / "tables"
        folder.mkdir()
        owner = os.stat(server.server.data).st_uid
        os.chown(folder, owner, -1)
        server.ask(f"CREATE TABLESPACE small LOCATION '{folder}'")
        for table in ("pulse_django_job_hot", "pulse_django_attempt"):
            server.ask(f"ALTER TABLE {table} SET TABLESPACE small")
        filler = disk / "filler"

        def fill() -> None:
            # A heartbeat that found the room of older versions of its rows would need no more. A snapshot keeps them.
            report.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            report.execute("SELECT count(*) FROM pulse_django_job")
            with filler.open("wb", buffering=0) as file:
                try:
                    while True:
                        file.write(b"\0" * 8_192)
                except OSError:
                    pass
            # What room the table has left is used up by rows that nobody deletes.
            with pytest.raises(psycopg.errors.DiskFull):
                while True:
                    server.ask(
                        "INSERT INTO pulse_django_job (task, args, kwargs, next_run_at)"
                        " SELECT 'filler', '[]', '{}', '2100-01-01' FROM generate_series(1, 20)"
                    )

        def empty() -> None:
            report.rollback()
            filler.unlink()

        _writes_fail(workers, server, fill, empty, says="53100", ttl=ttl)


def _writes_fail(
    workers: Workers,
    server: Scratch,
    begin: Callable[[], None],
    end: Callable[[], None],
    *,
    says: str,
    ttl: float = TTL,
) -> None:
    settings = SETTINGS | {"LEASE_TTL": ttl, "HEARTBEAT_INTERVAL": ttl / 3}
    several = [
        workers.ready("--concurrency", "16", settings=settings, env={"DATABASE_URL": server.url}) for _ in range(2)
    ]
    jobs = server.enqueue("tests.worker.handlers.naps", 32, 3 * ttl + 3)
    wait_until(lambda: workers.trace.count("begin").total() == len(jobs), lambda: several[0].log)
    begin()
    time.sleep(3 * ttl)  # the length of the misfortune
    end()
    done = "SELECT count(*) FROM pulse_django_job WHERE status = 'COMPLETED' AND id = ANY (%s)"
    wait_until(lambda: server.ask(done, jobs) == [(len(jobs),)], lambda: several[0].log, patience=30 + ttl)
    assert set(workers.trace.count("begin").values()) == {1}, several[0].log
    for worker in several:
        assert worker.says(f"heartbeat: full ({says})") or worker.says(f"heartbeat: cut off ({says})"), worker.log
        assert worker.exit_code is None
        worker.kill()


def assert_ran_once(jobs: list[Any], worker: StartedWorker) -> None:
    ended = Attempt.objects.filter(job_id__in=[int(job) for job in jobs]).values_list("outcome", flat=True)
    assert Counter(ended) == {"SUCCEEDED": len(jobs)}, worker.log


@contextmanager
def small_disk() -> Iterator[Path]:
    """Mount one, in a folder that a server which root starts may enter."""
    with tempfile.TemporaryDirectory(prefix="pulse-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        mount = ["mount", "-t", "tmpfs", "-o", "size=12m,mode=755", "tmpfs", folder]
        done = subprocess.run(mount, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        try:
            yield Path(folder)
        finally:
            subprocess.run(["umount", "-l", folder], check=True)
