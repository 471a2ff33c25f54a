"""Workers and watchdogs of a measurement's own: each in a session of its own, so that one signal ends all of it."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.processes import READY, ROOT, Surroundings, family, says, stat_fields, tail, wait_for, worker_command
from benchmarks.scratch import execute
from pulse_django.models import Job

LONGEST_START = 60.0
LONGEST_DEATH = 5.0
TASKS = {"TASK_MODULES": ["benchmarks.recovery_tasks"]}


class Process:
    """One process with everything that it started."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], log: Path, **options: Any) -> None:
        self.log = log
        with log.open("w") as file:
            self.popen = subprocess.Popen(
                command,
                cwd=ROOT,
                env=environment,
                start_new_session=True,
                **{"stdout": file, "stdin": subprocess.DEVNULL, **options},
                stderr=file,
            )

    def wait_until_ready(self) -> None:
        wait_for(lambda: says(self.log, READY), self.popen, self.log)

    def child(self) -> int | None:
        """Return the process of a worker that runs handlers, if there is one now."""
        members = family(self.popen.pid)
        return members[2] if len(members) == 3 else None

    def kill(self) -> tuple[datetime, datetime]:
        """Kill keeper, nursery and children with one signal. Return the database's time just before and just after."""
        members = family(self.popen.pid)
        if len(members) < 3 or any(os.getpgid(member) != self.popen.pid for member in members):
            raise SystemExit(f"Not a whole worker in one group: {members}\n{tail(self.log)}")
        before = database_now()
        os.killpg(self.popen.pid, signal.SIGKILL)
        after = database_now()
        self.popen.wait(LONGEST_DEATH)
        wait_until(lambda: not any(map(is_alive, members)), "somebody survived SIGKILL", LONGEST_DEATH)
        return before, after

    def end(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()


class HeldWatchdog(Process):
    """``pulse_watchdog --once --json`` that has started, is connected, and sweeps when it is released."""

    def __init__(self, environment: dict[str, str], log: Path) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        super().__init__([sys.executable, "-m", "benchmarks.recovery_held"], environment, log, **pipes)

    def wait_until_ready(self) -> None:
        if self._line(LONGEST_START) != "ready":
            raise SystemExit(f"A watchdog did not become ready:\n{tail(self.log)}")

    def release(self) -> None:
        stdin: Any = self.popen.stdin
        stdin.write("go\n")

    def has_answered(self) -> bool:
        stdout: Any = self.popen.stdout
        return bool(select.select([stdout], [], [], 0.0)[0])

    def answer(self, patience: float = LONGEST_START) -> dict[str, Any]:
        line = self._line(patience)
        if self.popen.wait(LONGEST_DEATH) != 0 or not line:
            raise SystemExit(f"A watchdog failed:\n{tail(self.log)}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self, patience: float) -> str:
        stdout: Any = self.popen.stdout
        return stdout.readline().strip() if select.select([stdout], [], [], patience)[0] else ""


class Herd:
    """All processes of one measurement."""

    def __init__(self, around: Surroundings, pulse: dict[str, Any]) -> None:
        self._around = around
        self._environment = around.environment(TASKS | pulse)
        self._members: list[Process] = []

    def worker(self, queue: str, *flags: str) -> Process:
        """Start a worker of this queue that leaves expired leases to others."""
        command = worker_command("--queues", queue, "--name", queue, "--no-watchdog", *flags)
        return self._add(Process(command, self._environment, self._around.log(queue)))

    def watchdog(self) -> Process:
        """Start a watchdog that goes on, and wait for its first sweep."""
        log = self._around.log("watchdog")
        watchdog = self._add(Process([sys.executable, "manage.py", "pulse_watchdog", "--json"], self._environment, log))
        wait_for(lambda: says(log, '"reaped"'), watchdog.popen, log)
        return watchdog

    def held_watchdogs(self, count: int) -> list[HeldWatchdog]:
        """Start some that wait at the door of their only sweep."""
        held = [HeldWatchdog(self._environment, self._around.log(f"held-{number}")) for number in range(count)]
        self._members += held
        for watchdog in held:
            watchdog.wait_until_ready()
        return held

    def end(self) -> None:
        for member in self._members:
            member.end()
        self._members.clear()

    def _add(self, process: Process) -> Process:
        self._members.append(process)
        return process


@contextmanager
def herd(around: Surroundings, pulse: dict[str, Any]) -> Iterator[Herd]:
    """Processes with these settings, which are gone when the block ends."""
    members = Herd(around, pulse)
    try:
        yield members
    finally:
        members.end()


def is_alive(pid: int) -> bool:
    fields = stat_fields(Path(f"/proc/{pid}"))
    return bool(fields) and fields[0] not in "ZX"


def database_now() -> datetime:
    now: datetime = execute("SELECT clock_timestamp()")[0][0]
    return now


def wait_until(happened: Callable[[], bool], otherwise: str, patience: float, pause: float = 0.02) -> None:
    deadline = time.monotonic() + patience
    while not happened():
        if time.monotonic() > deadline:
            raise SystemExit(otherwise)
        time.sleep(pause)


def wait_until_leases_are_believed(ttl: float) -> None:
    """A server that has only just been started lets watchdogs wait for one TTL; that is not what is measured."""
    if (missing := ttl + 1.0 - Job.objects.server_clock().up_for) > 0:
        time.sleep(missing)
