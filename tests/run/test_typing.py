"""Type checkers see the arguments of ``.enqueue()``: a small user project passes, and its mistakes do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulse_django

ROOT = Path(__file__).parent.parent.parent
ALL = pulse_django.__all__
HELPERS = ("expire_lease", "jump_to_next_run", "run_job", "assert_enqueued", "assert_idempotent")
PROJECT, EVERY_NAME = (Path(__file__).parent / name for name in ("user_project.py", "every_name.py"))


# As on Django 6, where nobody installs the backport.
NO_BACKPORT = """
[mypy]
[mypy-django_tasks.*]
follow_imports = skip
"""


@pytest.mark.parametrize("config", ["", NO_BACKPORT], ids=["with the backport", "without"])
def test_a_small_user_project_is_checked_line_by_line(config: str, tmp_path: Path) -> None:
    (tmp_path / "mypy.ini").write_text(config)
    options = ["--strict", "--no-error-summary", "--hide-error-context"]
    options += ["--config-file", str(tmp_path / "mypy.ini")] if config else []
    command = [sys.executable, "-m", "mypy", *options, str(PROJECT), str(EVERY_NAME)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    reported = {int(line) for line in re.findall(r"user_project\.py:(\d+): error", checked.stdout)}
    expected = {number for number, line in enumerate(PROJECT.read_text().splitlines(), start=1) if line.endswith("# E")}
    assert reported == expected, checked.stdout + checked.stderr
    assert "every_name.py" not in checked.stdout, checked.stdout


def test_the_types_of_public_names_do_not_depend_on_the_backport(tmp_path: Path) -> None:
    members = ["Context.task_result", "Batch.add", "tasks.PulseTask.enqueue", *(f"testing.{name}" for name in HELPERS)]
    lines = [f"reveal_type(pulse_django.{name})" for name in (*ALL, *members)]
    (tmp_path / "names.py").write_text("\n".join(["import pulse_django.tasks, pulse_django.testing", *lines]))
    revealed = []
    for number, config in enumerate(("[mypy]", NO_BACKPORT)):
        (tmp_path / "mypy.ini").write_text(config)
        options = ["--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / f"{number}")]
        command = [sys.executable, "-m", "mypy", *options, str(tmp_path / "names.py")]
        checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        revealed.append(re.findall(r"names\.py:\d+: note: (.*)", checked.stdout))
    assert len(revealed[0]) == len(lines)
    assert revealed[0] == revealed[1]


def test_every_public_name_is_checked() -> None:
    text = EVERY_NAME.read_text()
    assert [name for name in ALL if not re.search(rf"\b{name}\b", text)] == []
    assert set(ALL) <= set(dir(pulse_django))
