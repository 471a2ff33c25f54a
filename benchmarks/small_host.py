"""Memory, processes and connections of a worker in a plain project, beside what Django and psycopg take alone.

    python -m benchmarks.small_host

Prints a table for docs/how-to/small-host.md. Pages that the processes of a worker share are counted once, and other
Python processes on the machine make no difference.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django

django.setup()

from benchmarks.processes import MIB, PlainSurroundings, working
from benchmarks.scratch import empty, execute, scratch_database
from pulse_django.models import Job
from pulse_django.queue.words.job_options import NewJob
from testproject.harness.processes import StartedProcess

LONGEST_DRAIN = 60.0
SETTINGS = "from .settings import *\nDEBUG = False\nALLOWED_HOSTS = ['*']\n"
ALONE = """
import django
django.setup()
{more}
from django.db import connection
connection.ensure_connection()
print("is ready", flush=True)
import time
time.sleep(600)
"""
WEB = """
from django.core.handlers.wsgi import WSGIHandler
from django.test import RequestFactory
WSGIHandler().get_response(RequestFactory().get("/admin/login/")).render()
"""
SCRIPTS = {
    "Django and psycopg alone, connected": ("without", ""),
    "the same with `pulse_django` in `INSTALLED_APPS`": ("measured", ""),
    "a web process that has shown the admin's login, without `pulse_django`": ("without", WEB),
    "the same with `pulse_django`": ("measured", WEB),
}
WORKERS = {
    "`pulse_worker --concurrency 2`": ["--concurrency", "2"],
    "`pulse_worker`, which is 1 process with 8 slots": [],
    "`pulse_worker --no-watchdog`": ["--no-watchdog"],
    "`pulse_worker --processes 2`": ["--processes", "2"],
}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=2_000, help="run by each worker, so that all its slots are used")
    parser.add_argument("--calm", type=float, default=5.0, help="seconds until a worker is at rest")
    given = parser.parse_args()
    with scratch_database("small"), tempfile.TemporaryDirectory(prefix="small-") as folder:
        around = PlainSurroundings.make(Path(folder))
        (around.project / "mysite" / "measured.py").write_text(SETTINGS)
        without = (
            "INSTALLED_APPS = [app for app in INSTALLED_APPS if app not in ('pulse_django', 'shop')]\nTASKS = {}\n"
        )
        (around.project / "mysite" / "without.py").write_text(SETTINGS + without)
        print("| | memory, MiB | at rest after work | processes | connections | at work |\n|---|---|---|---|---|---|")
        for said, (settings, more) in SCRIPTS.items():
            with started(around, settings, ALONE.format(more=more)) as process:
                print(f"| {said} | {memory(process):.0f} | | {len(process.family())} | {connections()} | |", flush=True)
        for said, flags in WORKERS.items():
            print(f"| {said} | {' | '.join(map(str, measured(around, flags, given.jobs, given.calm)))} |", flush=True)


def measured(around: PlainSurroundings, flags: list[str], jobs: int, calm: float) -> tuple[object, ...]:
    empty()
    environment = around.environment(DJANGO_SETTINGS_MODULE="mysite.measured")
    with working(around, around.log("worker"), environment, *flags) as worker:
        time.sleep(calm)
        at_start, idle = memory(worker), connections()
        Job.objects.enqueue_many([NewJob(task=around.key("insert"))] * jobs)
        most, deadline = 0, time.monotonic() + LONGEST_DRAIN
        while execute("SELECT 1 FROM pulse_django_job WHERE finished_at IS NULL LIMIT 1"):
            most = max(most, connections())
            if time.monotonic() > deadline:
                raise SystemExit("The jobs were not run")
        time.sleep(calm)
        return f"{at_start:.0f}", f"{memory(worker):.0f}", len(worker.family()), idle, most


@contextmanager
def started(around: PlainSurroundings, settings: str, script: str) -> Iterator[StartedProcess]:
    environment = around.environment(DJANGO_SETTINGS_MODULE=f"mysite.{settings}")
    process = StartedProcess.start(around.log("alone"), [sys.executable, "-c", script], environment, cwd=around.project)
    try:
        process.wait_until_it_says("is ready")
        yield process
    finally:
        process.kill()


def memory(process: StartedProcess) -> float:
    """Return MiB: what each has for itself, and the files of the one that maps most. They all map the same."""
    family = process.family()
    own = sum(kib(pid, "smaps_rollup", "Pss_Anon") + kib(pid, "smaps_rollup", "Pss_Shmem") for pid in family)
    return (own + max(kib(pid, "status", "RssFile") for pid in family)) / MIB


def kib(pid: int, file: str, name: str) -> int:
    lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def connections() -> int:
    """Return how many there are to this database, but for ours."""
    question = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    [(count,)] = execute(question)
    return int(count)


if __name__ == "__main__":
    main()
