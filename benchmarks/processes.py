"""The real worker, as a process of its own at its default settings, and what it costs the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.noop import RECEIVERS
from benchmarks.scratch import database_url

ROOT = Path(__file__).resolve().parent.parent
READY = "is ready"
LISTENS = "Listening for wake-ups"
LONGEST_START = 60.0
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


def worker_command(*flags: str) -> list[str]:
    return [sys.executable, "manage.py", "pulse_worker", *flags]


def run_burst(around: Surroundings, processes: int, *flags: str, pulse: dict[str, Any] | None = None) -> float:
    """Let a worker drain what is there. Return how many seconds it took from its start to its end."""
    log = around.log("burst")
    command = worker_command("--burst", "--processes", str(processes), *flags)
    with log.open("w") as file:
        started = time.perf_counter()
        code = subprocess.run(
            command, cwd=ROOT, env=around.environment(pulse), stdout=file, stderr=file, timeout=LONGEST_DRAIN
        ).returncode
        seconds = time.perf_counter() - started
    if code:
        raise SystemExit(f"The worker ended with {code}:\n{tail(log)}")
    return seconds


@contextmanager
def idle_worker(environment: dict[str, str], log: Path, *, listens: bool = True) -> Iterator[int]:
    """Keep a worker running that is ready. Yield the process id of its keeper."""
    with log.open("w") as file:
        worker = subprocess.Popen(worker_command(), cwd=ROOT, env=environment, stdout=file, stderr=file)
    try:
        wait_for(lambda: says(log, READY) and (not listens or says(log, LISTENS)), worker, log)
        yield worker.pid
    finally:
        worker.terminate()
        try:
            worker.wait(LONGEST_STOP)
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def wait_for(condition: Callable[[], bool], worker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + LONGEST_START
    while not condition():
        if worker.poll() is not None or time.monotonic() > deadline:
            raise SystemExit(f"The worker did not become ready (exit code {worker.poll()}):\n{tail(log)}")
        time.sleep(0.05)


def says(log: Path, words: str) -> bool:
    return words in log.read_text(errors="replace")


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-15:])


# What Linux knows about processes


def family(pid: int) -> list[int]:
    """Return this process and all its descendants: the keeper, the nursery, the children."""
    parents = {int(path.name): parent_of(path) for path in Path("/proc").iterdir() if path.name.isdigit()}
    found = [pid]
    for member in found:  # grows meanwhile
        found += sorted(child for child, parent in parents.items() if parent == member)
    return found


def parent_of(process: Path) -> int:
    fields = stat_fields(process)
    return int(fields[1]) if fields else 0


def cpu_seconds(pid: int) -> float:
    fields = stat_fields(Path(f"/proc/{pid}"))
    return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def stat_fields(process: Path) -> list[str]:
    """Return what stands in ``stat`` after the name, which may hold anything; nothing if the process is gone."""
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / MIB
    raise SystemExit(f"/proc/{pid}/smaps_rollup has no Pss")
