"""What a run is played on: servers, workers that reach each of them through a proxy of their own, and their log."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
from django.db import connections

from chaos.checker import Execution
from chaos.clock import Clock
from chaos.handlers import LOG, ORDER
from testproject.harness.processes import StartedProcesses, StartedWorker, send, worker_command
from tests.crash.processes import ROOT, database_url
from tests.proxy import BlackHole
from tests.two_databases import MORE

# Short, so that a minute holds many recoveries.
PULSE: dict[str, Any] = {
    "LEASE_TTL": 2,
    "HEARTBEAT_INTERVAL": 0.6,
    "WATCHDOG_INTERVAL": 0.5,
    "POLL_INTERVAL": 0.2,
    "RETRY_BACKOFF_CAP": 0.5,
    "CHILD_TIMEOUT": 10,
    "MAX_LOST_WORKERS": 50,
    "MAX_ATTEMPTS": 200,
}
TTL, TICK = 2.0, 0.5
QUEUE = "default"
MUTANT_MODULES = ["chaos.mutants", "chaos.shard_mutants"]
CONCURRENCY = "8"
PATIENCE = 30.0  # seconds for a server to come back
# What a worker's log says of a claim without an answer, by its own clock.
_UNANSWERED = re.compile(r"(\S+ \S+) WARNING pulse_django\.database: claims ", re.ASCII)


def _on_each(act: Callable[..., None]) -> Callable[..., None]:
    """Return a method of ``Proxies`` that does this to each of them."""

    def on_each(proxies: Proxies, *args: Any, **options: Any) -> None:
        for proxy in proxies.of.values():
            act(proxy, *args, **options)

    return on_each


class Proxies:
    """The proxies of one worker: one for each database."""

    def __init__(self, folder: Path, aliases: Iterable[str]) -> None:
        self.of = {alias: BlackHole(_new(folder / alias), connections[alias].settings_dict) for alias in aliases}

    def environment(self, **options: object) -> dict[str, str]:
        """Return the environment of a process that connects through these proxies."""
        urls = {
            alias: database_url(alias=alias, host=proxy.host, port=proxy.port, **options)
            for alias, proxy in self.of.items()
        }
        return {"DATABASE_URL": urls.pop("default"), MORE: json.dumps(urls)}

    swallow, refuse, heal = (_on_each(act) for act in (BlackHole.swallow, BlackHole.refuse, BlackHole.heal))
    bury, hang_up, close = (_on_each(act) for act in (BlackHole.bury, BlackHole.hang_up, BlackHole.close))
    lose_the_answer_to = _on_each(BlackHole.lose_the_answer_to)


class Worker:
    """A worker, its proxies, its clock, and all its processes. It is started again whenever it is gone."""

    def __init__(self, name: str, folder: Path, mutant: str, jumping: Path | None, aliases: Sequence[str]) -> None:
        self.name, self._folder, self._mutant = name, folder, mutant
        sockets = _new(folder / name)
        self._order = sockets / "order"
        self._pulse = PULSE | placement_over(aliases)
        self.proxy = Proxies(sockets, aliases)
        self.clock = Clock(sockets / "clock", jumping)
        self._processes = StartedProcesses(folder)
        self._starts = 0

    @property
    def label(self) -> str:
        """How its holders begin."""
        return f"{self.name}-{self._starts}"

    @property
    def labels(self) -> set[str]:
        """Return the names of all processes that use its proxies. A stopped worker first finishes its jobs."""
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
        modules = ["chaos.handlers", *(MUTANT_MODULES if self._mutant else [])]
        env = os.environ | {
            **self.proxy.environment(options=told),
            "PYTHONPATH": str(ROOT),
            "PULSE": json.dumps(self._pulse | {"TASK_MODULES": modules}),
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
    """A server of this run, whichever it is just now. Proxies and this process follow it when that changes."""

    def __init__(self, alias: str, cluster: Any) -> None:  # a Cluster, of tests.cluster or of tests.citus
        self.alias, self._cluster = alias, cluster

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
        connections[self.alias].settings_dict["HOST"] = str(self._cluster.primary.home)  # the proxies read it as well
        self._wait()

    def make_standby(self) -> None:
        self._cluster.make_standby()

    def deadlocks(self) -> list[str]:
        return self._cluster.deadlocks()

    def _wait(self) -> None:
        now({self.alias: self})


def now(databases: Mapping[str, Database]) -> datetime:
    """Return the clock of the servers, which is one. Asks the first that responds."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        for alias in databases:
            with suppress(Exception), connections[alias].cursor() as cursor:
                cursor.execute("SELECT clock_timestamp()")
                [answer] = cursor.fetchone()
                return answer
        connections.close_all()
        time.sleep(0.1)
    raise SystemExit("PostgreSQL did not come back")


def placement_over(aliases: Sequence[str]) -> dict[str, Any]:
    """Return the settings that spread the jobs over several databases."""
    return {"PLACEMENT": "by_key", "QUEUE_SHARDS": {QUEUE: list(aliases)}} if len(aliases) > 1 else {}


def _new(folder: Path) -> Path:
    folder.mkdir()
    return folder


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
