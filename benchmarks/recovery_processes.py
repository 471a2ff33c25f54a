"""Workers and watchdogs of a measurement of recovery."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from datetime import datetime
from typing import Any

from benchmarks.processes import ROOT, Surroundings
from benchmarks.scratch import execute
from pulse_django.models import Job
from testproject.harness.processes import (
    LONGEST_START,
    StartedProcess,
    StartedProcesses,
    StartedWorker,
    worker_command,
)

LONGEST_DEATH = 5.0
TASKS = {"TASK_MODULES": ["benchmarks.recovery_tasks"]}


class HeldWatchdog:
    """``pulse_watchdog --once --json`` that has started, is connected, and sweeps when it is released."""

    def __init__(self, process: StartedProcess) -> None:
        self._process = process

    def wait_until_ready(self) -> None:
        if self._line(LONGEST_START) != "ready":
            raise SystemExit(f"A watchdog did not become ready:\n{self._process.log_end}")

    def release(self) -> None:
        stdin: Any = self._process.popen.stdin
        stdin.write("go\n")

    def has_answered(self) -> bool:
        stdout: Any = self._process.popen.stdout
        return bool(select.select([stdout], [], [], 0.0)[0])

    def answer(self, patience: float = LONGEST_START) -> dict[str, Any]:
        line = self._line(patience)
        self._process.expect_exit(0, LONGEST_DEATH)
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _line(self, patience: float) -> str:
        stdout: Any = self._process.popen.stdout
        return stdout.readline().strip() if select.select([stdout], [], [], patience)[0] else ""


class Herd(StartedProcesses):
    """All processes of one measurement, with these settings. They are gone when the block ends."""

    def __init__(self, around: Surroundings, pulse: dict[str, Any]) -> None:
        super().__init__(around.folder)
        self._environment = around.environment(TASKS | pulse)

    def worker(self, queue: str, *flags: str) -> StartedWorker:
        """Start a worker of this queue that leaves expired leases to others."""
        command = worker_command("--queues", queue, "--name", queue, "--no-watchdog", *flags)
        return self.start_worker(queue, command, self._environment, cwd=ROOT)

    def watchdog(self) -> StartedProcess:
        """Start a watchdog that goes on, and wait for its first sweep."""
        command = [sys.executable, "manage.py", "pulse_watchdog", "--json"]
        watchdog = self.start("watchdog", command, self._environment, cwd=ROOT)
        watchdog.wait_until_it_says('"reaped"')
        return watchdog

    def held_watchdogs(self, count: int) -> list[HeldWatchdog]:
        """Start some that wait at the door of their only sweep."""
        command = [sys.executable, "-m", "benchmarks.recovery_held"]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        held = [
            HeldWatchdog(self.start(f"held-{number}", command, self._environment, cwd=ROOT, **pipes))
            for number in range(count)
        ]
        for watchdog in held:
            watchdog.wait_until_ready()
        return held


def kill_at_once(worker: StartedWorker) -> tuple[datetime, datetime]:
    """Kill keeper, fork server and children with one signal. Return the database's time just before and just after."""
    members = worker.family()
    if len(members) < 3 or any(os.getpgid(member) != worker.pid for member in members):
        raise SystemExit(f"Not a whole worker in one group: {members}\n{worker.log_end}")
    before = database_now()
    os.killpg(worker.pid, signal.SIGKILL)
    after = database_now()
    if left := worker.left_behind(LONGEST_DEATH):
        raise SystemExit(f"Some survived SIGKILL: {left}")
    return before, after


def database_now() -> datetime:
    now: datetime = execute("SELECT clock_timestamp()")[0][0]
    return now


def wait_until_leases_are_believed(ttl: float) -> None:
    """A server that has only just been started lets watchdogs wait for one TTL; that is not what is measured."""
    if (missing := ttl + 1.0 - Job.objects.server_clock().up_for) > 0:
        time.sleep(missing)
