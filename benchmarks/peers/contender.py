"""A peer that is installed: asks its side for things, starts its workers, and reads what its handlers left behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.apps.witness import BEGUN, CALLS, RECORD, STAMPS
from benchmarks.peers.environments import APPS, Environment
from benchmarks.peers.peer import REDIS, Peer
from benchmarks.peers.stores import Database, RedisStore
from testproject.harness.processes import StartedProcess, StartedProcesses

LONGEST_REQUEST = 600.0
PRIVATE = ("DATABASE_URL", "DJANGO_SETTINGS_MODULE", "PULSE", "PYTHONPATH", "BENCH_TUNED", "DEBUG")


class MeasureFailed(Exception):
    """Says in a line why there is no figure."""


class Contender:
    def __init__(self, peer: Peer, environment: Environment, store: Database | RedisStore, folder: Path) -> None:
        self.peer, self.store = peer, store
        self._command = environment.command
        self.folder = folder / peer.name
        self.calls_folder = self.folder / "calls"
        self.stamps, self.begun = (self.folder / name for name in ("stamps", "begun"))
        ours = {CALLS: str(self.calls_folder), STAMPS: str(self.stamps), BEGUN: str(self.begun)}
        inherited = {key: value for key, value in os.environ.items() if key not in PRIVATE}
        self._environment = inherited | environment.variables | store.variables() | ours

    def prepare(self) -> str:
        """Install the queue where its jobs will be. Return its versions."""
        self.forget()
        if isinstance(self.store, Database):
            self.store.begin()
            self.ask("install")
            self.store.keep_as_template()
        return self.ask("version").strip()

    def forget(self) -> None:
        """Begin a measurement: nothing has been called."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.calls_folder.mkdir(parents=True)
        self._processes = StartedProcesses(self.folder)

    def reset(self) -> None:
        self.forget()
        self.store.reset()

    def ask(self, *arguments: str, patience: float = LONGEST_REQUEST) -> str:
        """Let the peer's side do something, and return what it prints."""
        command = [*self._command, *arguments]
        try:
            done = subprocess.run(
                command, cwd=APPS, env=self._environment, capture_output=True, text=True, timeout=patience
            )
        except subprocess.TimeoutExpired:
            raise MeasureFailed(f"{arguments[0]} was not done after {patience:g} s") from None
        if done.returncode:
            raise MeasureFailed(f"{arguments[0]}: {last_line(done.stderr or done.stdout)}")
        return done.stdout

    def enqueue(self, count: int, how: str, task: str) -> float | None:
        said = self.ask("enqueue", str(count), how, task).split()
        return float(said[-1]) if said else None

    def left(self) -> int:
        return self.store.left() if isinstance(self.store, Database) else self.counts()[0]

    def counts(self) -> tuple[int, int | None]:
        if isinstance(self.store, Database):
            return self.store.counts()
        left, done = map(int, self.ask("counts").split())
        return left, None if done < 0 else done

    @property
    def is_on_redis(self) -> bool:
        return self.peer.store == REDIS

    # Workers

    @contextmanager
    def workers(self, mode: str, processes: int = 1, *, tuned: bool = True) -> Iterator[list[StartedProcess]]:
        """Have so many processes work until the block ends."""
        copies, each = (1, processes) if self.peer.starts_processes else (processes, 1)
        with self._processes:
            yield [self.start(mode, each, tuned=tuned) for _ in range(copies)]

    def start(self, mode: str, processes: int, *, tuned: bool) -> StartedProcess:
        command = [*self._command, "work", mode, str(processes), "tuned" if tuned else "default"]
        name = f"worker-{len(self._processes.started)}"
        return self._processes.start(name, command, self._environment, cwd=APPS)

    def check(self, workers: list[StartedProcess]) -> None:
        for worker in workers:
            if worker.exit_code is not None:
                raise MeasureFailed(f"its worker ended with {worker.exit_code}: {last_line(worker.log)}")

    def said(self) -> str:
        return last_line("\n".join(worker.log for worker in self._processes.started))

    # What handlers left behind

    def calls(self) -> tuple[int, int, int]:
        """Return how many calls there were, and the instants of the first and of the last, in nanoseconds."""
        records = [RECORD.unpack(data) for path in self.calls_folder.iterdir() if len(data := path.read_bytes()) == 24]
        records = [record for record in records if record[0]]
        if not records:
            return 0, 0, 0
        return sum(record[0] for record in records), min(r[1] for r in records), max(r[2] for r in records)


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:300] if lines else "it said nothing"


def wait_until(happened, otherwise: str, patience: float, pause: float = 0.002) -> None:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise MeasureFailed(otherwise)
        time.sleep(pause)
