"""The real worker, as a process of its own at its default settings, and what it costs the machine."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.noop import RECEIVERS
from benchmarks.scratch import database_url
from pulse_django.harness.processes import READY, StartedWorker, worker_command

ROOT = Path(__file__).resolve().parent.parent
LISTENS = "Listening for wake-ups"
LONGEST_STOP = 60.0
LONGEST_DRAIN = 1_800.0
MIB = 1024


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the processes of a measurement find: an environment, and a folder for their files."""

    folder: Path
    receivers: bool = False

    def environment(self, pulse: dict[str, Any] | None = None, **more: str) -> dict[str, str]:
        """Return the environment for a process of this project: the scratch database, the default settings."""
        ours = {
            "DATABASE_URL": database_url(),
            "DEBUG": "0",
            "PULSE": json.dumps({"TASK_MODULES": ["benchmarks.noop"], **(pulse or {})}),
            RECEIVERS: "1" if self.receivers else "",
        }
        return os.environ | ours | more

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"


def run_burst(around: Surroundings, processes: int, *flags: str, pulse: dict[str, Any] | None = None) -> float:
    """Let a worker drain what is there. Return how many seconds it took from its start to its end."""
    command = worker_command("--burst", "--processes", str(processes), *flags)
    started = time.perf_counter()
    worker = StartedWorker.start(around.log("burst"), command, around.environment(pulse), cwd=ROOT)
    try:
        worker.expect_exit(0, LONGEST_DRAIN)
        return time.perf_counter() - started
    finally:
        worker.kill()


@contextmanager
def working(log: Path, environment: dict[str, str], *flags: str, listens: bool = False) -> Iterator[StartedWorker]:
    """Keep a worker running that is ready."""
    worker = StartedWorker.start(log, worker_command(*flags), environment, cwd=ROOT)
    try:
        worker.wait_until_it_says(READY, *([LISTENS] if listens else []))
        yield worker
    finally:
        worker.stop(LONGEST_STOP)


def cpu_seconds(pid: int) -> float:
    try:  # the name comes first, in brackets, and may hold anything
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / MIB
    raise SystemExit(f"/proc/{pid}/smaps_rollup has no Pss")
