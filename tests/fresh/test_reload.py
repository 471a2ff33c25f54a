"""``pulse_worker --reload`` outlives an error in the code that was just saved."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from testproject.new_project import NewProject
from tests.crash.workers import wait_until

GOOD = "from pulse_django import task\n\n\n@task\ndef say(word):\n    print(word)\n"


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("def say(:\n", "SyntaxError"),
        ("import no_such_module\n", "ModuleNotFoundError"),
        ("x = 1 / 0\n", "ZeroDivision"),
    ],
)
def test_it_waits_for_the_next_change(new_project: Callable[[], NewProject], broken: str, says: str) -> None:
    project = new_project()
    project.follow_the_readme()
    project.write("shop/tasks.py", GOOD)
    project.write("shop/views.py", "")
    project.manage("migrate", "-v", "0")
    worker = project.start_worker("--reload")
    try:
        worker.wait_until_ready()
        save(project.folder / "shop/tasks.py", broken)
        worker.wait_until_it_says(says, "waiting for the next change")
        assert worker.exit_code is None
        save(project.folder / "shop/tasks.py", GOOD + "# mended\n")
        wait_until(lambda: worker.log.count("is ready") == 2, lambda: worker.log)
        worker.signal(signal.SIGTERM)
        assert worker.wait(10) == 0
    finally:
        worker.kill()


# Saves another module while the worker loads the tasks, once.
SAVES = f"""
from pathlib import Path
here = Path(__file__)
if not (done := here.with_name("saved")).exists():
    here.with_name("tasks.py").write_text({GOOD.replace("say(", "sing(")!r})
    done.touch()
"""


def test_a_file_that_is_saved_while_it_starts_is_loaded(new_project: Callable[[], NewProject]) -> None:
    project = new_project()
    project.follow_the_readme()
    project.write("shop/tasks.py", GOOD)
    project.write("shop/views.py", "")
    project.write("shop/saves.py", SAVES)
    project.manage("migrate", "-v", "0")
    project.settings('PULSE = {"TASK_MODULES": ["shop.saves"]}')
    worker = project.start_worker("--reload")
    try:
        worker.wait_until_it_says("the code has changed", "is ready")
        project.shell("from shop.tasks import sing; sing.enqueue('la')")
        worker.wait_until_it_says("la\n")
    finally:
        worker.kill()


def test_ctrl_c_ends_it_while_it_waits(new_project: Callable[[], NewProject]) -> None:
    project = new_project()
    project.follow_the_readme()
    project.manage("migrate", "-v", "0")
    worker = project.start_worker("--reload")
    try:
        worker.wait_until_ready()
        save(project.folder / "shop/tasks.py", "def say(:\n")
        worker.wait_until_it_says("waiting for the next change")
        worker.signal(signal.SIGINT)
        assert worker.wait(10) == 130
        assert "Traceback (most recent call last):\n  File" not in worker.log.rpartition("waiting for")[2]
    finally:
        worker.kill()


def save(path: Path, text: str) -> None:
    """Save a file so that its time differs from before, whatever the clock of the file system."""
    path.write_text(text)
    os.utime(path, (time.time() + 5, time.time() + 5))
