"""What the README says works in a project that was made from the README and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testproject.new_project import NewProject


def test_the_project_has_no_problem(readme_project: NewProject) -> None:
    done = readme_project.manage("check", "--database", "default", "--fail-level", "WARNING")
    assert "no issues" in done.stdout


def test_its_example_runs_in_a_worker(readme_project: NewProject) -> None:
    readme_project.shell("from shop.tasks import send_invoice\nsend_invoice.enqueue(7)")
    worker = readme_project.manage("pulse_worker", "--burst")
    assert "the invoice of order 7" in worker.stdout
    assert "COMPLETED" in worker.stderr
    assert readme_project.ask("SELECT status FROM pulse_django_job") == [("COMPLETED",)]


def test_any_queue_may_be_used(readme_project: NewProject) -> None:
    code = 'from pulse_django import task\n\n\n@task(queue_name="mail")\ndef send(number):\n    return number\n'
    readme_project.write("shop/mail.py", code)
    said = readme_project.shell(
        "from shop.mail import send\n"
        "print(send.enqueue(1).task.queue_name, send.using(queue_name='letters').enqueue(2).task.queue_name)"
    ).stdout
    (readme_project.folder / "shop/mail.py").unlink()
    assert said.split() == ["mail", "letters"]
    assert readme_project.ask("SELECT queue FROM pulse_django_job WHERE task = 'shop.mail.send' ORDER BY id") == [
        ("mail",),
        ("letters",),
    ]


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


NAMES = ("Job", "Queue", "Event", "Schedule", "Worker")
MODELS = "from django.db import models\n" + "".join(
    f"\n\nclass {name}(models.Model):\n    parent = models.ForeignKey('self', models.CASCADE, null=True)\n"
    for name in NAMES
)
LOOK = f"""
from django.contrib.auth.models import Permission
for name in {NAMES}:
    for act in ("add", "change", "delete", "view"):
        found = Permission.objects.get(codename=act + "_" + name.lower())
        print(found.content_type.app_label, end=" ")
print(Job._meta.label, Queue._meta.label, Event._meta.label, Schedule._meta.label, Worker._meta.label)
"""


def test_models_of_the_project_keep_their_permissions_and_their_names(new_project: Callable[[], NewProject]) -> None:
    project = new_project()
    project.follow_the_readme()
    project.write("shop/models.py", MODELS)
    project.manage("makemigrations", "shop", "-v", "0")
    project.manage("migrate", "-v", "0")
    said = project.shell(LOOK).stdout.split()
    assert said == ["shop"] * 4 * len(NAMES) + [f"shop.{name}" for name in NAMES]
    assert "no issues" in project.manage("check", "--database", "default", "--fail-level", "WARNING").stdout
    project.shell("from shop.tasks import send_invoice; send_invoice.enqueue(7)")
    assert "COMPLETED" in project.manage("pulse_worker", "--burst").stderr
