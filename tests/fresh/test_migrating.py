"""The recipe to leave django-tasks-db, followed by a project that has jobs in its table. No job is stranded."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import django
import pytest

from testproject.new_project import ROOT, NewProject, blocks_of
from tests.fresh.databases import own_database
from tests.installed import built, python_with

PAGE = (ROOT / "docs/how-to/migrating.md").read_text()
TASKS = """
from {api} import task


@task
def greet(name):
    if name == "parent":
        greet.enqueue("child")
    return name
"""


@pytest.mark.usefixtures("pulse_db")
def test_no_job_of_django_tasks_db_is_stranded(tmp_path: Path) -> None:
    python = python_with(built(tmp_path / "dist")[0], "binary,tasks52", tmp_path)
    subprocess.run([python, "-m", "pip", "install", "-q", "django-tasks-db>=0.12"], check=True, timeout=300)
    with own_database() as database:
        project = NewProject(tmp_path, database, str(python))
        had = ["django_tasks_db", "shop"] + ["django_tasks"] * (django.VERSION < (6, 0))
        project.settings(
            f"INSTALLED_APPS += {had}",
            f'DATABASES = {{"default": {{"ENGINE": "django.db.backends.postgresql", "NAME": "{database}"}}}}',
            'TASKS = {"default": {"BACKEND": "django_tasks_db.DatabaseBackend"}}',
        )
        project.write("shop/tasks.py", TASKS.format(api="django.tasks" if django.VERSION >= (6, 0) else "django_tasks"))
        project.manage("migrate", "-v", "0")
        project.shell("from shop.tasks import greet; greet.enqueue('old'); greet.enqueue('parent')")

        project.settings(blocks_of(PAGE)["mysite/settings.py"])
        project.manage("migrate", "-v", "0")
        project.shell("from shop.tasks import greet; greet.enqueue('new')")
        refused = project.manage("db_worker", "--batch", ok=False)
        assert "is not a database backend" in refused.stderr, "the recipe is needed"

        old, waiting = (shlex.split(line) for line in re.findall(r"```console\n +(.*?)\n", PAGE))
        assert old[:4] == ["TASKS_BACKEND=django_tasks_db.DatabaseBackend", "python", "manage.py", "db_worker"]
        assert left(project, waiting) == "2"
        os.environ["TASKS_BACKEND"] = old[0].partition("=")[2]
        try:
            project.manage(*old[3:], "--batch")
        finally:
            del os.environ["TASKS_BACKEND"]
        assert left(project, waiting) == "0"
        project.manage("pulse_worker", "--burst")
        done = "from django_tasks_db.models import DBTaskResult as old; print(old.objects.successful().count())"
        assert project.shell(done).stdout.strip() == "3", "also the one that an old job enqueued"
        assert project.ask("SELECT status, args FROM pulse_django_job") == [("COMPLETED", ["new"])]


def left(project: NewProject, command: list[str]) -> str:
    return project.manage(*command[2:]).stdout.strip().splitlines()[-1]
