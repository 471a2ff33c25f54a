"""What a worker writes of each job, in a project that says nothing of its log, and in one that does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from testproject.new_project import NewProject

TASKS = """
from pulse_django import task


@task
def works():
    return 1


@task(max_attempts=1)
def fails():
    raise ValueError("no such order")
"""
LOGGING = """
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"console": {"class": "logging.StreamHandler"}},
    "loggers": {"django": {"level": "INFO"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
"""


@pytest.fixture
def project(readme_project: NewProject) -> Iterator[NewProject]:
    """A project with two tasks, one of which fails, and a job of each."""
    settings = readme_project.folder / "mysite/settings.py"
    before = settings.read_text()
    readme_project.write("shop/jobs.py", TASKS)
    readme_project.settings('PULSE = {"TASK_MODULES": ["shop.jobs"]}')
    readme_project.shell("from shop.jobs import fails, works\nworks.enqueue()\nfails.enqueue()")
    yield readme_project
    settings.write_text(before)
    Path(readme_project.folder / "shop/jobs.py").unlink()


def test_a_job_is_one_line_and_a_dead_letter_one_traceback(project: NewProject) -> None:
    lines = project.manage("pulse_worker", "--burst").stderr.splitlines()
    [done] = [line for line in lines if "shop.jobs.works" in line]
    assert "COMPLETED" in done
    [dead] = [line for line in lines if "shop.jobs.fails" in line]
    assert "DEAD_LETTERED" in dead
    assert [line.strip() for line in lines].count("Traceback (most recent call last):") == 1


def test_a_project_with_a_log_of_its_own_keeps_the_lines_of_django(project: NewProject) -> None:
    project.settings(*LOGGING.splitlines())
    lines = project.manage("pulse_worker", "--burst").stderr.splitlines()
    states = [line.rpartition("state=")[2] for line in lines if line.startswith("Task id=")]
    assert sorted(states) == ["FAILED", "RUNNING", "RUNNING", "SUCCESSFUL"]
    assert lines.count("Traceback (most recent call last):") == 1
