"""A task is found wherever a project declares it, or the start-up check names its module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from testproject.new_project import NewProject

TASK = """
from pulse_django import task
from django.http import HttpResponse


@task
def here(number):
    return number


def page(request):
    return HttpResponse(here.enqueue(1).id)
"""
URLS = """
from django.urls import path
from shop import views
urlpatterns = [path("", views.page)]
"""


@contextmanager
def having(project: NewProject, **files: str) -> Iterator[None]:
    """Files of the project for a while."""
    before = {name: path.read_text() if path.exists() else None for name, path in paths(project, files).items()}
    for name, path in paths(project, files).items():
        path.write_text(files[name])
    yield
    for name, path in paths(project, files).items():
        if before[name] is None:
            path.unlink()
        else:
            path.write_text(before[name] or "")


def paths(project: NewProject, files: dict[str, str]) -> dict[str, object]:
    return {name: project.folder / f"{name.replace('__', '/')}.py" for name in files}


def test_a_task_of_a_view_runs(readme_project: NewProject) -> None:
    with having(readme_project, shop__views=TASK, mysite__urls=URLS):
        readme_project.shell("from shop.views import here; here.enqueue(1)")
        done = readme_project.manage("pulse_worker", "--burst")
        assert "'shop.views.here' attempt 1: COMPLETED" in done.stderr


def test_a_task_in_a_module_that_nothing_imports_is_named_at_the_start(readme_project: NewProject) -> None:
    with having(readme_project, shop__night=TASK):
        done = readme_project.manage("check")
        assert "pulse_django.W005" in done.stderr
        assert "shop.night" in done.stderr
        assert "PULSE['TASK_MODULES']" in done.stderr
        started = readme_project.manage("pulse_worker", "--burst")
        assert started.stderr.count("shop.night declares tasks") == 1


def test_its_jobs_are_put_back_with_a_warning_that_says_what_to_do(readme_project: NewProject) -> None:
    with having(readme_project, shop__night=TASK):
        readme_project.shell("from shop.night import here; here.enqueue(1)")
        done = readme_project.manage("pulse_worker", "--burst")
        [line] = [line for line in done.stderr.splitlines() if "attempt 1" in line]
        assert "WARNING" in line
        assert "shop.night.here" in line
        assert "TASK_MODULES" in line
        assert "tasks.py" in line


def test_a_named_module_is_imported_and_not_reported(new_project: Callable[[], NewProject]) -> None:
    project = new_project()
    project.follow_the_readme()
    project.settings('PULSE = {"TASK_MODULES": ["shop.night"]}')
    project.write("shop/night.py", TASK)
    assert "W005" not in project.manage("check").stderr
