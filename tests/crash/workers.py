"""Real workers on the test database, which are gone at the end of a test."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pulse_django.models import Attempt, Job
from testproject.harness import processes
from testproject.harness.census import census
from testproject.harness.processes import PATIENCE, StartedProcess, StartedProcesses, StartedWorker, worker_command
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


class Workers(StartedProcesses):
    """Starts workers for one test."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._numbers = count()
        self.trace = Trace(folder / "trace")

    def start(self, *arguments: str, settings: dict[str, Any] | None = None, **options: Any) -> StartedWorker:
        """Start one. ``settings`` are added to ``QUICK``; ``env`` and ``prefix`` to its environment and its command."""
        command = [*options.pop("prefix", ()), *worker_command(*arguments)]
        env = environment(PULSE=json.dumps(QUICK | (settings or {})), PULSE_TRACE=str(self.trace.path))
        env |= options.pop("env", {})
        name = f"worker-{next(self._numbers)}"  # several threads may be starting workers
        return self.start_worker(name, command, env, cwd=ROOT, **options)

    def ready(self, *arguments: str, settings: dict[str, Any] | None = None, **options: Any) -> StartedWorker:
        return self.start(*arguments, settings=settings, **options).wait_until_ready()

    def last(self) -> StartedProcess:
        return self.started[-1]


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
    with Workers(tmp_path) as workers:
        yield workers


def wait_until(
    happened: Callable[[], object], explain: Callable[[], object] | None = None, patience: float = PATIENCE
) -> None:
    """Wait until this is true. Without an explanation of its own, a failure shows what became of the jobs."""

    def jobs() -> object:
        return Counter(Job.objects.values_list("status", "task", "last_error"))

    processes.wait_until(happened, explain or jobs, patience)


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


def is_alive(pid: int) -> bool:
    """Whether there is such a process; a zombie that waits for its parent is none."""
    now = census()
    return pid in now and now[pid].is_alive
