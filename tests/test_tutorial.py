"""The tutorial, done as it says: the wheel is installed, into an environment that knows nothing of this tree; a fresh
project, real processes, a real ``kill -9``.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.installed import built, python_with

PAGE = (Path(__file__).parent.parent / "docs/tutorial/first-task.md").read_text()
DATABASE = "test_pulse_tutorial"
OURS = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "PYTHONPATH", "PULSE", "VIRTUAL_ENV")
PATIENCE = 60.0
# As a browser would: log in, open the index, the board and the page of the job.
LOOK_AT_THE_ADMIN = """
from django.conf import settings
from django.test import Client
settings.ALLOWED_HOSTS = ["testserver"]
client = Client()
assert client.login(username="ada", password="ada")
for page in ("", "pulse_django/board/", "pulse_django/job/1/change/"):
    answer = client.get(f"/admin/{page}")
    assert answer.status_code == 200, page
    print(answer.content.decode())
"""


@pytest.fixture
def environment(pulse_db: None) -> Iterator[dict[str, str]]:
    """What a reader has: a server, and a database of his own on it."""
    settings = connection.settings_dict
    for statement in (f"DROP DATABASE IF EXISTS {DATABASE}", f"CREATE DATABASE {DATABASE}"):
        with connection.cursor() as cursor:
            cursor.execute(statement)
    yield {
        **{name: value for name, value in os.environ.items() if name not in OURS},
        "PGDATABASE": DATABASE,
        "PGHOST": settings["HOST"],
        "PGPORT": str(settings["PORT"] or ""),
        "PGUSER": settings["USER"],
        "PGPASSWORD": settings["PASSWORD"],
    }
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {DATABASE} WITH (FORCE)")


def console(chapter: str) -> list[list[str]]:
    """The commands of a chapter."""
    text = PAGE.split(f"## {chapter}", 1)[1].split("\n## ", 1)[0]
    lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    return [shlex.split(line) for line in lines]


def write_files(project: Path) -> None:
    for path, where, text in re.findall(r"```python\n# (\S+\.py)([^\n]*)\n(.*?)```", PAGE, re.DOTALL):
        with (project / path).open("a" if "at the end" in where else "w") as file:
            file.write(text)


def job(environment: dict[str, str]) -> tuple[str, dict[str, int] | None]:
    names = {"PGDATABASE": "dbname", "PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password"}
    where = {name: environment[variable] for variable, name in names.items() if environment[variable]}
    with psycopg.connect(**where) as database:  # type: ignore[arg-type]
        row = database.execute("SELECT status, progress FROM pulse_django_job").fetchone()
    assert row is not None
    return row[0], row[1]


def test_the_tutorial(tmp_path: Path, environment: dict[str, str]) -> None:
    def run(command: list[str], folder: Path) -> str:
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=PATIENCE)
        assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}{done.stderr}"
        return done.stdout

    install, start_project, change_folder, start_app, migrate, check = console("1. A project")
    assert install[:4] == ["python", "-m", "pip", "install"]
    extras = re.fullmatch(r"pulse-django\[(.*)\]", install[4])
    assert extras is not None
    python = python_with(built(tmp_path / "dist")[0], extras[1], tmp_path)
    environment["PATH"] = f"{python.parent}{os.pathsep}{environment['PATH']}"
    assert change_folder == ["cd", "mysite"]
    run(start_project, tmp_path)
    project = tmp_path / "mysite"
    run(start_app, project)
    write_files(project)
    run(migrate, project)
    assert "no issues" in run(check, project)

    [enqueue] = console("3. A job")
    assert "job 1" in run(enqueue, project)

    worker, kill = console("4. A worker, and its end")
    assert kill[:2] == ["pkill", "-9"]  # by name: other tests may have workers too
    doomed = subprocess.Popen(worker, cwd=project, env=environment, stdout=subprocess.DEVNULL)
    wait_until(lambda: (job(environment)[1] or {}).get("done", 0) >= 2)
    doomed.send_signal(signal.SIGKILL)
    doomed.wait(PATIENCE)
    assert job(environment)[0] == "RUNNING"

    another, look = console("5. Another worker")

    def completed() -> bool:
        run(another, project)
        return job(environment)[0] == "COMPLETED"

    wait_until(completed)
    said = run(look, project)
    assert "COMPLETED 2 counted from" in said
    assert "counted from 0 to 10" not in said  # it resumed
    assert "1 WORKER_LOST worker lease expired" in said
    assert "2 SUCCEEDED" in said

    burst, schedules, run_it = console("7. Every night")

    def declared() -> bool:
        run(burst, project)
        return "shop.tasks.tidy_up" in run(schedules, project)

    wait_until(declared)
    assert "At 03:00 every day (Europe/Berlin)" in run(schedules, project)
    assert "was enqueued" in run(run_it, project)

    create_superuser, run_server = console("6. The admin")
    assert run_server == ["python", "manage.py", "runserver"]
    environment |= {f"DJANGO_SUPERUSER_{name}": "ada" for name in ("USERNAME", "PASSWORD")}
    run([*create_superuser, "--noinput", "--email", "ada@example.com"], project)
    pages = run(["python", "manage.py", "shell", "-v", "0", "-c", LOOK_AT_THE_ADMIN], project)
    assert "Board" in pages
    assert "no worker" in pages.lower()
    assert "worker lease expired" in pages


def wait_until(happened: object) -> None:
    assert callable(happened)
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)
