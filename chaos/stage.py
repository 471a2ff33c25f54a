"""What a run is played on: a primary and a standby, workers each behind a proxy of its own, and their log."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.db import connection, connections

from chaos.checker import Execution
from chaos.clock import Clock
from chaos.handlers import LOG, ORDER
from pulse_django.harness.processes import StartedProcesses, StartedWorker, send, worker_command
from tests.crash.processes import ROOT, database_url
from tests.proxy import BlackHole

# Short, so that a minute holds many recoveries.
PULSE: dict[str, Any] = {
    "LEASE_TTL": 2,
    "HEARTBEAT_INTERVAL": 0.6,
    "WATCHDOG_INTERVAL": 0.5,
    "POLL_INTERVAL": 0.2,
    "RETRY_BACKOFF_CAP": 0.5,
    "CHILD_SILENCE": 10,
    "MAX_LOSSES": 50,
    "MAX_ATTEMPTS": 200,
    "TASK_MODULES": ["chaos.handlers"],
}
TTL, TICK = 2.0, 0.5
CONCURRENCY = "8"
# What a worker's log says of a claim without an answer, by its own clock.
_UNANSWERED = re.compile(r"(\S+ \S+) WARNING pulse_django\.database: claims ", re.ASCII)


class Worker:
    """A worker, its proxy, its clock, and all its processes. It is started again whenever it is gone."""

    def __init__(self, name: str, folder: Path, mutant: str, jumping: Path | None) -> None:
        self.name, self._folder, self._mutant = name, folder, mutant
        sockets = folder / name
        sockets.mkdir()
        self._order = sockets / "order"
        self.proxy = BlackHole(sockets, connection.settings_dict)
        self.clock = Clock(sockets / "clock", jumping)
        self._processes = StartedProcesses(folder)
        self._starts = 0

    @property
    def label(self) -> str:
        """How its holders begin."""
        return f"{self.name}-{self._starts}"

    @property
    def labels(self) -> set[str]:
        """Of all that speak through its proxy: one that was told to stop finishes what it runs."""
        return {self.label} | {one.name for one in self._processes.started if one.exit_code is None}

    @property
    def process(self) -> StartedWorker:
        """The one that was started last."""
        last = self._processes.started[-1]
        assert isinstance(last, StartedWorker)
        return last

    def start(self) -> None:
        self._starts += 1
        told = f"-c chaos.worker={self.label}"  # the witness reads it
        settings = PULSE | ({"TASK_MODULES": ["chaos.handlers", "chaos.mutants"]} if self._mutant else {})
        env = os.environ | {
            "DATABASE_URL": database_url(host=self.proxy.host, port=self.proxy.port, options=told),
            "DJANGO_SETTINGS_MODULE": "testproject.settings",
            "PYTHONPATH": str(ROOT),
            "PULSE": json.dumps(settings),
            "CHAOS_MUTANT": self._mutant,
            LOG: str(self._folder / "executions"),
            ORDER: str(self._order),
            **self.clock.environment(),
        }
        command = worker_command("--name", self.label, "--concurrency", CONCURRENCY)
        self._processes.start_worker(self.label, command, env, cwd=ROOT)

    def supervise(self) -> None:
        """Start it again if it ended by itself: it may have been started while the database was away."""
        if self.process.exit_code is not None:
            self.start()

    def harm_itself(self, pids: Sequence[int], how: str) -> None:
        """Have these processes do that to themselves: ``chaos.handlers`` listens for the signal."""
        self._order.write_text(how)
        send(pids, signal.SIGUSR1)

    def heal(self) -> None:
        """Take away what is the matter with it, and start it if it is gone."""
        self.process.thaw()
        self.clock.jump_to(0.0)
        self.proxy.heal()
        self.proxy.bury()
        self.supervise()

    def end(self) -> None:
        self._processes.kill()  # a worker that got SIGTERM may still be running
        self.proxy.close()


class Database:
    """The server of this run, whichever it is just now. Proxies and this process follow it when that changes."""

    def __init__(self, cluster: Any) -> None:  # a Cluster, of tests.cluster or of tests.citus
        self._cluster = cluster

    def stop(self, mode: str) -> None:
        connections.close_all()
        self._cluster.stop(self._cluster.primary, mode)

    def kill(self) -> None:
        connections.close_all()
        self._cluster.kill_primary()

    def stall(self, seconds: float) -> None:
        self._cluster.stall_primary(seconds)

    def start(self) -> None:
        self._cluster.start_again(self._cluster.primary)
        self._wait()

    @contextmanager
    def locking(self, statement: str) -> Iterator[None]:
        """Hold locks in a separate transaction.

        Each try waits for less than ``deadlock_timeout``, as a migration should: a lock of the partitioned table takes
        its partitions one by one, and a caller that has enqueued and then reads takes them in another order.
        """
        with psycopg.connect(self._cluster.primary.url) as locker:
            while True:
                try:
                    locker.execute("SET LOCAL lock_timeout = '300ms'")
                    locker.execute(statement)
                    break
                except psycopg.errors.LockNotAvailable:
                    locker.rollback()
            yield
            locker.rollback()

    def change_partitions(self, day: int) -> None:
        """Make the partition of a day and drop it, as a watchdog does, if the lock is to be had soon."""
        with psycopg.connect(self._cluster.primary.url, autocommit=True) as watchdog:
            watchdog.execute("SET lock_timeout = '100ms'")
            for change in (f"SELECT pulse_django_make_day({day}, 0)", f"SELECT pulse_django_drop_day({day})"):
                # Citus locks on several servers, so it may find a deadlock before the time is up.
                with suppress(psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
                    watchdog.execute(change)

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Answer reads and refuse writes, as with a disk that is full."""
        self._set_read_only("on")
        try:
            yield
        finally:
            self._set_read_only("off")

    def _set_read_only(self, value: str) -> None:
        with psycopg.connect(self._cluster.primary.url, autocommit=True) as operator:
            operator.execute("SET default_transaction_read_only = off")
            operator.execute(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
            operator.execute("SELECT pg_reload_conf()")

    def fail_over(self) -> None:
        """The primary dies, its standby takes over."""
        connections.close_all()
        self._cluster.kill_primary()
        self._cluster.promote()
        connection.settings_dict["HOST"] = str(self._cluster.primary.home)  # the proxies read it as well
        self._wait()

    def make_standby(self) -> None:
        self._cluster.make_standby()

    def deadlocks(self) -> list[str]:
        return self._cluster.deadlocks()

    def now(self) -> Any:
        """The server's clock. Asked until it answers."""
        return self._ask("SELECT clock_timestamp()")

    def _wait(self) -> None:
        self._ask("SELECT 1")

    def _ask(self, question: str) -> Any:
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with suppress(Exception), connection.cursor() as cursor:
                cursor.execute(question)
                [answer] = cursor.fetchone()
                return answer
            connections.close_all()
            time.sleep(0.1)
        raise SystemExit("PostgreSQL did not come back")


def executions(folder: Path) -> list[Execution]:
    """Read the handlers' own log."""
    path = folder / "executions"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    ends = {line["execution"]: line for line in lines if line["what"] != "begin"}
    return [
        Execution(
            id=line["execution"],
            job=line["job"],
            attempt=line["attempt"],
            token=line["token"],
            holder=line["holder"],
            wish=line.get("wish"),
            listens=line["listens"],
            began_at=line["at"],
            ended_at=ends[line["execution"]]["at"] if line["execution"] in ends else None,
            ended=ends[line["execution"]]["what"] if line["execution"] in ends else "",
        )
        for line in lines
        if line["what"] == "begin"
    ]


def unanswered_claims(folder: Path, workers: Sequence[Worker]) -> dict[str, list[datetime]]:
    """When each worker wrote down that a claim of its was not answered, or its connection was lost."""
    found: dict[str, list[datetime]] = defaultdict(list)
    for worker in workers:
        for log in folder.glob(f"{worker.name}-*.log"):
            for line in log.read_text(errors="replace").splitlines():
                if said := _UNANSWERED.match(line):
                    when = datetime.strptime(said[1], "%Y-%m-%d %H:%M:%S,%f")  # noqa: DTZ007 - a log's is local
                    found[log.stem].append(worker.clock.really(when.astimezone()))
    return found
