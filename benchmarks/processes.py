"""The real worker, as a process of its own at its default settings, and what it costs the machine."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from django.db import connection

from benchmarks import noop
from benchmarks.scratch import database_url
from pulse_django.worker.logs import DROPPED
from testproject.harness.processes import READY, StartedWorker, worker_command
from testproject.new_project import NewProject

ROOT = Path(__file__).resolve().parent.parent
LISTENS = "Listening for wake-ups"
LONGEST_STOP = 60.0
LONGEST_DRAIN = 1_800.0
MIB = 1024
# What the handlers that use the ORM write to.
MODEL = """
from django.db import models


class Entry(models.Model):
    number = models.IntegerField()
"""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What the processes of a measurement find: a project, an environment, and a folder for their files.

    This project is lean: DEBUG is off, so Django logs no line for a job, and connections are as its settings say.
    """

    folder: Path
    receivers: bool = False
    name: ClassVar[str] = "lean"
    tasks: ClassVar[str] = noop.__name__  # the module

    @property
    def project(self) -> Path:
        """Return the folder that the project's processes work in."""
        return ROOT

    def environment(self, pulse: dict[str, Any] | None = None, **more: str) -> dict[str, str]:
        """Return the environment for a process of the project: the scratch database, the default settings."""
        ours = {
            "DATABASE_URL": database_url(),
            "DEBUG": "0",
            "PULSE": json.dumps({"TASK_MODULES": [self.tasks], **(pulse or {})}),
            noop.RECEIVERS: "1" if self.receivers else "",
        }
        return os.environ | ours | more

    def key(self, task: str) -> str:
        """Return the key of one of the benchmarks' tasks."""
        return f"{self.tasks}.{task}"

    def log(self, name: str) -> Path:
        return self.folder / f"{self.name}-{name}.log"


@dataclass(frozen=True, kw_only=True)
class PlainSurroundings(Surroundings):
    """A project as users have it: ``startproject``, the README's lines, and nothing else. Its logging is the default.

    Its tasks are the benchmarks' own; so is the address of the database, which comes from the environment.
    """

    made: NewProject
    name: ClassVar[str] = "plain"
    tasks: ClassVar[str] = "shop.tasks"

    @classmethod
    def make(cls, folder: Path, *, receivers: bool = False) -> PlainSurroundings:
        project = NewProject(folder, connection.settings_dict["NAME"])
        project.follow_the_readme()
        project.write("shop/models.py", MODEL)
        project.write("shop/tasks.py", Path(noop.__file__).read_text())
        shutil.rmtree(project.folder / "shop" / "migrations")  # the scratch database knows others of that name
        project.manage("migrate", "--run-syncdb", "-v", "0")
        return cls(folder=folder, receivers=receivers, made=project)

    @property
    def project(self) -> Path:
        return self.made.folder

    def environment(self, pulse: dict[str, Any] | None = None, **more: str) -> dict[str, str]:
        ours = {noop.RECEIVERS: "1" if self.receivers else "", "PYTHONPATH": str(ROOT)}
        if pulse:
            (self.project / "mysite" / "changed.py").write_text(f"from .settings import *\nPULSE = {pulse!r}\n")
            ours["DJANGO_SETTINGS_MODULE"] = "mysite.changed"
        return self.made.environment | ours | more


def run_burst(around: Surroundings, processes: int, *flags: str, pulse: dict[str, Any] | None = None) -> float:
    """Let a worker drain what is there. Return how many seconds it took from its start to its end."""
    command = worker_command("--burst", "--processes", str(processes), *flags)
    started = time.perf_counter()
    worker = StartedWorker.start(around.log("burst"), command, around.environment(pulse), cwd=around.project)
    try:
        worker.expect_exit(0, LONGEST_DRAIN)
        seconds = time.perf_counter() - started
        if worker.says(DROPPED.partition("%")[0]):
            raise SystemExit("The worker dropped log lines: the figure would be a lie")
        return seconds
    finally:
        worker.kill()


@contextmanager
def working(
    around: Surroundings, log: Path, environment: dict[str, str], *flags: str, listens: bool = False
) -> Iterator[StartedWorker]:
    """Keep a worker running that is ready."""
    worker = StartedWorker.start(log, worker_command(*flags), environment, cwd=around.project)
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
