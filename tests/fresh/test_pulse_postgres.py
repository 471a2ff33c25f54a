"""A project without PostgreSQL: ``pulse_postgres`` starts one in its folder, and a job runs on it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulse_django.embedded.programs import NoPostgresError, find_programs
from testproject.new_project import NewProject


@pytest.fixture
def project() -> Iterator[NewProject]:
    """In a folder whose name is short, which a socket needs, and that a server started by root may enter."""
    try:
        find_programs()
    except NoPostgresError as error:
        pytest.skip(f"the suite runs on a database from elsewhere: {error}")
    folder = Path(tempfile.mkdtemp(prefix="pulse-", dir="/tmp"))
    folder.chmod(0o755)
    project = NewProject(folder, "nowhere")
    project.follow_the_readme()
    try:
        yield project
    finally:
        folder.chmod(0o755)
        project.manage("pulse_postgres", "stop")
        shutil.rmtree(folder)


def setting_in(said: str) -> str:
    found = re.search(r"^DATABASES = \{.*?^\}", said, re.DOTALL | re.MULTILINE)
    assert found, said
    return found[0]


def test_a_job_runs_on_the_setting_that_it_prints(project: NewProject) -> None:
    command = [project.python, "manage.py", "pulse_postgres", "start"]
    racers = [
        subprocess.Popen(command, cwd=project.folder, env=project.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    said = {racer.communicate(timeout=60)[0] for racer in racers}
    assert [racer.returncode for racer in racers] == [0, 0, 0]
    assert len(said) == 1
    [text] = said

    project.settings(setting_in(text))
    project.manage("migrate", "-v", "0")
    project.shell("from shop.tasks import send_invoice; send_invoice.enqueue(1)")
    assert "attempt 1: COMPLETED" in project.manage("pulse_worker", "--burst").stderr
    assert project.manage("pulse_postgres", "status").stdout == text
    data = project.folder / ".pulse_postgres"
    assert (data / ".gitignore").read_text() == "*\n"
    assert next(data.glob("*/server.log")).parent.stat().st_mode & 0o777 == 0o700

    assert project.manage("pulse_postgres", "stop").stdout == "Stopped.\n"
    assert project.manage("pulse_postgres", "stop").stdout == "It was not running.\n"
    assert project.manage("pulse_postgres", "status", ok=False).returncode == 3


def test_it_is_for_development(project: NewProject) -> None:
    project.settings("DEBUG = False", 'ALLOWED_HOSTS = ["*"]')
    refused = project.manage("pulse_postgres", "start", ok=False)
    assert refused.returncode == 1
    assert refused.stderr.startswith("CommandError: pulse_postgres start is for development and requires DEBUG = True")
    assert not (project.folder / ".pulse_postgres").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has rights to drop")
def test_root_is_told_that_postgresql_does_not_run_as_root(project: NewProject) -> None:
    project.folder.parent.chmod(0o700)
    refused = project.manage("pulse_postgres", "start", ok=False)
    assert refused.returncode == 1
    [line] = refused.stderr.splitlines()
    assert "PostgreSQL does not run as root: use another user, or a folder that everybody can enter." in line
