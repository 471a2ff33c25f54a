"""Type checkers see the arguments of ``.enqueue()``: a small user project passes, and its mistakes do not."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PROJECT = Path(__file__).parent / "user_project.py"


def test_a_small_user_project_is_checked_line_by_line() -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(PROJECT)]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    reported = {int(line) for line in re.findall(r"user_project\.py:(\d+): error", checked.stdout)}
    expected = {number for number, line in enumerate(PROJECT.read_text().splitlines(), start=1) if line.endswith("# E")}
    assert reported == expected, checked.stdout + checked.stderr
