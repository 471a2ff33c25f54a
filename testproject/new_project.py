"""A project as a new user has it: ``startproject``, ``startapp``, and what the README says to add."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import django
import psycopg
from django.core.management import call_command
from django.db import connection

from testproject.harness.processes import StartedWorker

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PATIENCE = 60.0
# A new user has none of these.
OURS = ("DJANGO_SETTINGS_MODULE", "DATABASE_URL", "PYTHONPATH", "PULSE", "PULSE_PG_HOME", "VIRTUAL_ENV")
DATABASE_OF_THE_README = '"NAME": "mysite"'


class NewProject:
    """A Django project in a folder of its own, with a database of its own."""

    def __init__(self, folder: Path, database: str, python: str = sys.executable) -> None:
        self.folder, self.database, self.python = folder / "mysite", database, python
        self.folder.mkdir()
        call_command("startproject", "mysite", str(self.folder))
        (self.folder / "shop").mkdir()
        call_command("startapp", "shop", str(self.folder / "shop"))

    @property
    def environment(self) -> dict[str, str]:
        settings = connection.settings_dict
        mine = {name: value for name, value in os.environ.items() if name not in OURS}
        where = {"PGHOST": settings["HOST"], "PGPORT": str(settings["PORT"] or ""), "PGUSER": settings["USER"]}
        return {**mine, **where, "PGPASSWORD": settings["PASSWORD"] or ""}

    def follow_the_readme(self) -> None:
        """Write what the README says, into the files that it names."""
        for path, text in blocks_of(README).items():
            self.write(path, text)
        if django.VERSION < (6, 0):
            self.settings('INSTALLED_APPS += ["django_tasks"]')

    def write(self, path: str, text: str) -> None:
        """Write a file; what belongs into the settings is added to their end."""
        with (self.folder / path).open("a" if path.endswith("settings.py") else "w") as file:
            file.write(text.replace(DATABASE_OF_THE_README, f'"NAME": "{self.database}"'))

    def settings(self, *lines: str) -> None:
        self.write("mysite/settings.py", "\n".join(["", *lines, ""]))

    def manage(self, *arguments: str, ok: bool = True, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run ``manage.py``; any warning is an error. Unless ``ok`` is False it has to succeed."""
        done = subprocess.run(  # noqa: S603 - the caller's own project
            [self.python, "manage.py", *arguments],
            cwd=self.folder,
            env=self.environment | {"PYTHONWARNINGS": "error"},
            capture_output=True,
            text=True,
            input=text,
            timeout=PATIENCE,
        )
        if ok and done.returncode:
            raise AssertionError(f"{arguments}\n{done.stdout}{done.stderr}")
        return done

    def shell(self, code: str, *, ok: bool = True) -> subprocess.CompletedProcess[str]:
        """Run Python code in the project."""
        return self.manage("shell", "-v", "0", "-c", code, ok=ok)

    def start_worker(self, *arguments: str) -> StartedWorker:
        """Start a worker. The caller kills it."""
        command = [self.python, "manage.py", "pulse_worker", *arguments]
        environment = self.environment | {"PYTHONWARNINGS": "error"}
        return StartedWorker.start(self.folder.with_name("worker.log"), command, environment, cwd=self.folder)

    def ask(self, statement: str) -> list[tuple[object, ...]]:
        """Ask the project's database."""
        return ask(self.database, statement)


def blocks_of(page: str) -> dict[str, str]:
    """Return the files that a page tells the reader to write, by path. The first line of each block names it."""
    return dict(re.findall(r"```python\n# (\S+\.py)[^\n]*\n(.*?)```", page, re.DOTALL))


def ask(database: str, statement: str) -> list[tuple[object, ...]]:
    """Run a statement in a database of the tests' server."""
    settings = connection.settings_dict
    where = {"host": settings["HOST"], "port": settings["PORT"], "user": settings["USER"]}
    given = {name: value for name, value in where.items() if value}
    with psycopg.connect(dbname=database, password=settings["PASSWORD"] or None, autocommit=True, **given) as session:
        cursor = session.execute(statement)
        return cursor.fetchall() if cursor.description else []
