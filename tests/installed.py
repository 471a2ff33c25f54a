"""Pulse as others have it: a wheel, in a virtual environment that knows nothing of this tree."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import django

ROOT = Path(__file__).parent.parent
PATIENCE = 300.0


def built(folder: Path) -> tuple[Path, Path]:
    """Build, and return the wheel and the source distribution."""
    done = _run([sys.executable, "-m", "build", "--outdir", str(folder), str(ROOT)])
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [source] = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def python_with(wheel: Path, extras: str, folder: Path) -> Path:
    """Install it, beside the Django that runs these tests, and return the Python that has it."""
    python = folder / "venv" / "bin" / "python"
    major, minor = django.VERSION[:2]
    install = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", f"{wheel}[{extras}]"]
    for command in ([sys.executable, "-m", "venv", str(folder / "venv")], [*install, f"django~={major}.{minor}.0"]):
        done = _run(command)
        assert done.returncode == 0, done.stdout + done.stderr
    return python


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=PATIENCE)
