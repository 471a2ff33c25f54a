"""Type checkers see the arguments of ``.enqueue()``: a small user project passes, and its mistakes do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import pulse_django

ROOT = Path(__file__).parent.parent.parent
PROJECT, EVERY_NAME = (Path(__file__).parent / name for name in ("user_project.py", "every_name.py"))


# As on Django 6, where nobody installs the backport, whose types are those that we use.
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


def test_every_public_name_is_checked() -> None:
    text = EVERY_NAME.read_text()
    assert [name for name in pulse_django.__all__ if not re.search(rf"\b{name}\b", text)] == []
