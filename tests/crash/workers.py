"""Real workers on the test database: started, signalled, looked at through /proc, and gone at the end of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pulse_django.models import Attempt, Job
from tests.crash.processes import ROOT, environment

# Short, so that nobody waits long for a dead worker's lease or for a second attempt.
QUICK: dict[str, Any] = {
    "LEASE_TTL": 1.5,
    "HEARTBEAT_INTERVAL": 0.5,
    "WATCHDOG_INTERVAL": 0.3,
    "POLL_INTERVAL": 0.1,
    "RETRY_BACKOFF_CAP": 0.05,
    "TASK_MODULES": ["tests.worker.handlers"],
}
# So long that whatever is recovered within a test was not recovered by a watchdog.
LONG_LEASE: dict[str, Any] = {"LEASE_TTL": 30, "HEARTBEAT_INTERVAL": 1, "WATCHDOG_INTERVAL": 10}
PATIENCE_WITH_THE_LAST = 2.0
PATIENCE = 30.0


class Worker:
    """One ``manage.py pulse_worker`` with everything that it started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self._log = process, log
        self._seen: set[int] = set()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def says(self, text: str) -> bool:
        return text in self.log

    def wait_until_ready(self) -> Worker:
        wait_until(lambda: self.says("is ready"), lambda: self.log)
        self.family()
        return self

    def wait(self, patience: float = PATIENCE) -> int:
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the worker did not end within {patience} s:\n{self.log}") from None

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def nursery(self) -> int:
        [nursery] = children_of(self.pid)
        return nursery

    def children(self) -> list[int]:
        """The processes that run handlers, in the order of their birth."""
        return sorted(children_of(self.nursery()))

    def child(self) -> int:
        [child] = self.children()
        return child

    def family(self) -> set[int]:
        """All processes of this worker, also those that it had when somebody asked before."""
        waiting = [self.pid]
        while waiting:
            pid = waiting.pop()
            self._seen.add(pid)
            waiting += children_of(pid)
        return self._seen

    def left_behind(self) -> set[int]:
        """Processes of this worker that are alive, and stay so: the last to go may need a moment for it."""
        deadline = time.monotonic() + PATIENCE_WITH_THE_LAST
        while alive := {pid for pid in self._seen if is_alive(pid)}:
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        return alive

    def end(self) -> None:
        self.family()
        for pid in self._seen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
        self.process.wait(PATIENCE)


class Workers:
    """Starts workers for one test."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Worker] = []
        self._numbers = count()
        self.trace = Trace(folder / "trace")

    def start(self, *arguments: str, settings: dict[str, Any] | None = None, **options: Any) -> Worker:
        """Start one. ``settings`` are added to ``QUICK``; ``env`` and ``prefix`` to its environment and its command."""
        command = [*options.pop("prefix", ()), sys.executable, "manage.py", "pulse_worker", *arguments]
        env = environment(PULSE=json.dumps(QUICK | (settings or {})), PULSE_TRACE=str(self.trace.path))
        env |= options.pop("env", {})
        log = self._folder / f"worker-{next(self._numbers)}.log"  # several threads may be starting workers
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=out, stderr=out, **options)
        worker = Worker(process, log)
        self._started.append(worker)
        return worker

    def ready(self, *arguments: str, settings: dict[str, Any] | None = None, **options: Any) -> Worker:
        return self.start(*arguments, settings=settings, **options).wait_until_ready()

    def last(self) -> Worker:
        return self._started[-1]

    def end(self) -> None:
        for worker in self._started:
            worker.end()


class Trace:
    """What handlers wrote down: one line each, appended at once, whatever becomes of them afterwards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]

    def of(self, job_id: int | str, what: str) -> list[dict[str, Any]]:
        return [line for line in self.lines() if line["job"] == int(job_id) and line["what"] == what]

    def count(self, what: str) -> Counter[int]:
        """How often each job wrote that."""
        return Counter(line["job"] for line in self.lines() if line["what"] == what)


@pytest.fixture
def workers(pulse_db: None, tmp_path: Path) -> Iterator[Workers]:
    """Workers that are killed when the test is over."""
    workers = Workers(tmp_path)
    yield workers
    workers.end()


def wait_until(
    happened: Callable[[], bool], explain: Callable[[], Any] | None = None, patience: float = PATIENCE
) -> None:
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise AssertionError(
                explain() if explain else Counter(Job.objects.values_list("status", "task", "last_error"))
            )
        time.sleep(0.03)


def status(job_id: Any) -> str:
    return str(Job.objects.values_list("status", flat=True).get(pk=job_id))


def outcomes(job_id: Any) -> list[str]:
    return list(Attempt.objects.filter(job_id=job_id).order_by("number").values_list("outcome", flat=True))


def wait_for(status_wanted: str, *job_ids: Any, patience: float = PATIENCE) -> None:
    """Return once all these jobs have that status."""
    ids = [int(job_id) for job_id in job_ids]
    wait_until(lambda: Job.objects.filter(pk__in=ids, status=status_wanted).count() == len(ids), patience=patience)


def all_have(status_wanted: str, job_ids: Sequence[Any]) -> bool:
    ids = [int(job_id) for job_id in job_ids]
    return Job.objects.filter(pk__in=ids, status=status_wanted).count() == len(ids)


def children_of(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found += [int(child) for child in thread.read_text().split()]
    return found


def is_alive(pid: int) -> bool:
    """Whether there is such a process; a zombie that waits for its parent is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
