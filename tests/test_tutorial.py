"""The tutorial, done as it says: the wheel is installed, into an environment that knows nothing of this tree; a fresh
project, real processes, a real ``kill -9``. The last chapter goes on in the project of the first.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import django
import psycopg
import pytest
from django.db import connection

from tests.installed import built, python_with

PAGES = Path(__file__).parent.parent / "docs/tutorial"
FIRST, LAST = ((PAGES / name).read_text() for name in ("first-task.md", "order-workflow.md"))
DATABASE = "test_pulse_tutorial"
OURS = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "PYTHONPATH", "PULSE", "VIRTUAL_ENV")
PATIENCE = 60.0
KILL = ["kill", "-9", "--", "-4711"]  # the process group, whose number the name of the worker ends with
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


@dataclass
class Reader:
    """Somebody who does what a page says, in a project."""

    page: str
    project: Path
    environment: dict[str, str]

    def console(self, chapter: str) -> list[list[str]]:
        """The commands of a chapter."""
        text = self.page.split(f"## {chapter}", 1)[1].split("\n## ", 1)[0]
        lines = [line for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
        return [shlex.split(line) for line in lines]

    def write_files(self) -> None:
        for path, where, text in re.findall(r"```python\n# (\S+\.py)([^\n]*)\n(.*?)```", self.page, re.DOTALL):
            with (self.project / path).open("a" if "at the end" in where else "w") as file:
                file.write(text)

    def run(self, command: list[str], folder: Path | None = None) -> str:
        words, _, source = " ".join(command).partition(" < ") if "<" in command else ("", "", "")
        done = subprocess.run(
            words.split() or command,
            input=(self.project / source).read_text() if source else None,
            cwd=folder or self.project,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, f"{shlex.join(command)}\n{said}"
        return said

    def kill_when(self, worker: list[str], happened: Any) -> None:
        """Start a worker, and kill all of its processes once that has happened."""
        doomed = subprocess.Popen(
            worker, cwd=self.project, env=self.environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            wait_until(happened)
        finally:
            os.killpg(doomed.pid, signal.SIGKILL)  # as a shell does for a negative number
            doomed.wait(PATIENCE)

    def ask(self, query: str) -> list[Any]:
        names = {"PGDATABASE": "dbname", "PGHOST": "host", "PGPORT": "port", "PGUSER": "user", "PGPASSWORD": "password"}
        where = {name: self.environment[variable] for variable, name in names.items() if self.environment[variable]}
        with psycopg.connect(**where) as database:  # type: ignore[arg-type]
            return database.execute(query).fetchall()


def test_the_tutorial(tmp_path: Path, environment: dict[str, str]) -> None:
    reader = Reader(FIRST, tmp_path / "mysite", environment)
    begin(reader, tmp_path)
    count(reader)
    tidy_up(reader)
    look_at_the_admin(reader)
    reader.page = LAST
    order(reader)


def begin(reader: Reader, folder: Path) -> None:
    install, start_project, change_folder, start_app, create_database, migrate, check = reader.console("1. A project")
    assert install[:5] == ["python", "-m", "pip", "install", "-e"]
    assert create_database == ["createdb", "mysite"]
    extras = re.fullmatch(r"path/to/checkout\[(.*)\]", install[5])
    if django.VERSION < (6, 0):
        extras = re.search(r"On Django 5[.]2, .* write `\[(.*?)\]`", FIRST)
    assert extras is not None
    python = python_with(built(folder / "dist")[0], extras[1], folder)
    reader.environment["PATH"] = f"{python.parent}{os.pathsep}{reader.environment['PATH']}"
    assert change_folder == ["cd", "mysite"]
    reader.run(start_project, folder)
    reader.run(start_app)
    reader.write_files()
    reader.run(migrate)
    assert "no issues" in reader.run(check)


def count(reader: Reader) -> None:
    def job() -> tuple[str, dict[str, int] | None]:
        [row] = reader.ask("SELECT status, progress FROM pulse_django_job")
        return row[0], row[1]

    [enqueue] = reader.console("3. A job")
    assert "job 1" in reader.run(enqueue)
    worker, kill = reader.console("4. Start a worker and kill it")
    assert kill == KILL
    reader.kill_when(worker, lambda: (job()[1] or {}).get("done", 0) >= 2)
    assert job()[0] == "RUNNING"
    another, look = reader.console("5. Start another worker")

    def completed() -> bool:
        reader.run(another)
        return job()[0] == "COMPLETED"

    wait_until(completed)
    said = reader.run(look)
    assert "COMPLETED 2 counted from" in said
    assert "counted from 0 to 10" not in said  # it resumed
    assert "1 WORKER_LOST worker lease expired" in said
    assert "2 SUCCEEDED" in said


def tidy_up(reader: Reader) -> None:
    burst, schedules, run_it = reader.console("7. Run a task every night")

    def declared() -> bool:
        reader.run(burst)
        return "shop.tasks.tidy_up" in reader.run(schedules)

    wait_until(declared)
    assert "At 03:00 every day (Europe/Berlin)" in reader.run(schedules)
    assert "was enqueued" in reader.run(run_it)


def look_at_the_admin(reader: Reader) -> None:
    create_superuser, run_server = reader.console("6. The admin")
    assert run_server == ["python", "manage.py", "pulse_dev"]
    reader.environment |= {f"DJANGO_SUPERUSER_{name}": "ada" for name in ("USERNAME", "PASSWORD")}
    reader.run([*create_superuser, "--noinput", "--email", "ada@example.com"])
    pages = reader.run(["python", "manage.py", "shell", "-v", "0", "-c", LOOK_AT_THE_ADMIN])
    assert "Board" in pages
    assert "no worker" in pages.lower()
    assert "worker lease expired" in pages


def order(reader: Reader) -> None:
    """The last chapter: killed after the charge and before its report, approved, and charged once."""

    def charges() -> int:
        return int(reader.ask("SELECT count(*) FROM shop_charge")[0][0])

    def status(node: str) -> str:
        return str(reader.ask(f"SELECT status FROM pulse_django_job WHERE node = '{node}'")[0][0])

    reader.write_files()
    for command in reader.console("1. Orders and charges"):
        reader.run(command)
    [enqueue] = reader.console("2. A workflow")
    assert "order 1 is workflow" in reader.run(enqueue)
    worker, kill, another, look = reader.console("3. Kill the worker after the charge")
    assert kill == KILL
    reader.kill_when(worker, lambda: charges() == 1)
    assert status("charge") == "RUNNING"

    def waits() -> bool:
        reader.run(another)
        return status("charge") == "WAITING"

    wait_until(waits)
    assert "charges: 1 shipped: False" in reader.run(look)
    approve, another, look = reader.console("4. Approve the order")
    assert "True" in reader.run(approve)

    def is_shipped() -> bool:
        reader.run(another)
        return status("ship") == "COMPLETED"

    wait_until(is_shipped)
    said = reader.run(look)
    assert "charges: 1 shipped: True" in said
    assert "ship COMPLETED 1 approved by Ada" in said
    [test] = reader.console("5. Test the workflow")
    assert "Ran 2 tests" in reader.run(test)


def wait_until(happened: object) -> None:
    assert callable(happened)
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.2)
