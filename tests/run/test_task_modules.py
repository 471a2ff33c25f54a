"""Which source declares a task: a table of modules as people write them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from django.apps import AppConfig
from django.core.checks import run_checks

from pulse_django import checks
from pulse_django.run import registry
from pulse_django.run.registry import modules_that_declare_tasks
from pulse_django.schedules import declarations
from tests.faults import all_faults

DECORATED = "\n\n@{}\ndef send(number):\n    return number\n"


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the only app that is installed."""
    folder = tmp_path / "shop"
    folder.mkdir()

    class Shop(AppConfig):
        name, label, path = "shop", "shop", str(folder)

    class Apps:
        ready = False  # nothing is imported

        @staticmethod
        def get_app_configs() -> list[AppConfig]:
            return [Shop("shop", sys.modules[__name__])]

    monkeypatch.setattr(registry, "apps", Apps())
    return folder


DECLARATIONS = [
    ("from pulse_django import task", "task", True),
    ("from pulse_django import Context, task as job", "job(max_attempts=3)", True),
    ("from pulse_django.tasks import task", "task", True),
    ("from django.tasks import task", "task()", True),
    ("from django_tasks import task", "task", True),
    ("from django import tasks", "tasks.task(priority=3)", True),
    ("import django.tasks", "django.tasks.task", True),
    ("import pulse_django", "pulse_django.task", True),
    ("from pulse_django import Context", "task", False),  # some other task
    ("from celery import task", "task", False),
    ("from pulse_django import task", "property", False),  # imported, and not used
    ("# from pulse_django import task", "task", False),
    ("from pulse_django import task\nthis is no Python", "task", False),
]


def test_what_is_a_declaration(app: Path) -> None:
    with all_faults() as about:
        for imports, decorator, is_a_task in DECLARATIONS:
            with about(f"{imports}; @{decorator}"):
                (app / "night.py").write_text(imports + DECORATED.format(decorator))
                assert modules_that_declare_tasks() == (["shop.night"] if is_a_task else [])


def test_packages_are_searched_and_what_no_worker_runs_is_not(app: Path) -> None:
    text = "from pulse_django import task" + DECORATED.format("task")
    places = ("__init__.py", "a/b/c.py", "tests/x.py", "migrations/0001.py", "test_y.py", "conftest.py", "venv/z.py")
    for place in places:
        path = app / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for package in ("a", "a/b", "tests", "migrations"):  # venv is none
        (app / package / "__init__.py").touch()
    assert modules_that_declare_tasks() == ["shop", "shop.a.b.c"]


def test_the_check_names_what_is_not_imported_and_nothing_else(app: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("night", "day"):
        (app / f"{name}.py").write_text("from pulse_django import task" + DECORATED.format("task"))
    monkeypatch.setitem(sys.modules, "shop.day", sys)
    [message] = checks.check_tasks()
    assert message.id == "pulse_django.W005"
    assert message.msg.startswith("shop.night declares tasks")


def test_the_project_of_the_tests_has_no_task_that_is_not_found() -> None:
    assert checks.check_tasks() == []


TASK = "from pulse_django import Schedule, task\n\n\n@task\ndef say(word):\n    print(word)\n\n\n"
BROKEN = {
    "a_typing_error": ("@task(priorty=3)\ndef sing(): ...\n", "TypeError: ", "priorty", "a_typing_error.py, line 9"),
    "an_import": ("import no_such_module\n", "No module named 'no_such_module'", "an_import.py, line 9"),
    "twice": (
        "@task\ndef sing(): ...\nSchedule('same', task=say, every=60)\nSchedule('same', task=sing, every=60)\n",
        "Two schedules are called 'same'",
        "twice.py, line 12",
    ),
    "a_query": ("from django.db import ProgrammingError\nraise ProgrammingError('no table')\n", "no table", "line 10"),
}


def test_the_check_names_each_module_that_fails_and_other_checks_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    for name, (rest, *_) in BROKEN.items():
        (tmp_path / f"{name}.py").write_text(TASK + rest)
    (tmp_path / "sound.py").write_text(TASK + "Schedule('unfit', task=say, every=60)\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(declarations, "_declared", {})
    monkeypatch.setattr(registry.registry, "_tasks", dict(registry.registry._tasks))
    monkeypatch.setattr(registry.registry, "_discovered", False)
    settings.PULSE = {"TASK_MODULES": [*BROKEN, "sound"]}
    found = run_checks()
    sys.modules.pop("sound", None)
    assert any("Schedule unfit" in one.msg for one in found if one.id == "pulse_django.W009")
    told = {one.msg.split()[0]: one for one in found if one.id in ("pulse_django.E018", "pulse_django.W012")}
    assert told.keys() == BROKEN.keys()
    with all_faults() as about:
        for name, (_, *said) in BROKEN.items():
            with about(name):
                assert all(text in told[name].msg for text in said), told[name].msg
                assert told[name].is_serious() == (name != "a_query")
