"""What is published: all that an app needs, nothing that is ours alone, and a description that the index will take."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

import pulse_django
from tests.installed import ROOT, built

APP = ROOT / "pulse_django"
KINDS = {".py", ".pyi", ".html", ".css", ".js", ".typed", ".po", ".mo"}


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return built(tmp_path_factory.mktemp("dist"))


def files_of_the_app() -> set[str]:
    return {
        str(path.relative_to(ROOT)) for path in APP.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_app_and_nothing_else(package: tuple[Path, Path]) -> None:
    names = {name for name in ZipFile(package[0]).namelist() if ".dist-info/" not in name}
    assert names == files_of_the_app()
    assert {Path(name).suffix for name in names} <= KINDS
    assert "pulse_django/py.typed" in names
    assert "pulse_django/locale/de/LC_MESSAGES/django.mo" in names
    for folder in ("migrations/0001_initial.py", "templates/admin/", "static/", "management/commands/pulse_worker.py"):
        assert any(name.startswith(f"pulse_django/{folder}") for name in names), folder


def test_the_version_stands_in_one_place(package: tuple[Path, Path]) -> None:
    with ZipFile(package[0]) as wheel:
        [name] = [name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = message_from_string(wheel.read(name).decode())
    assert metadata["Version"] == pulse_django.__version__
    assert metadata["Requires-Python"] == ">=3.11"
    required = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert sorted(required) == ["cronsim>=2.6", "django>=5.2", "psycopg>=3.1.12"]
    assert pulse_django.__version__ not in (ROOT / "pyproject.toml").read_text()
    # A marker can ask for the Python, but not for the Django: 5.2 runs on every Python that we support.
    [backport] = [line for line in metadata.get_all("Requires-Dist") if line.startswith("django-tasks")]
    assert "tasks52" in backport
    assert "python_version" not in backport


def test_the_version_is_in_the_changelog() -> None:
    chapters = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert pulse_django.__version__ in chapters[:2]
    assert len(chapters) == 1 or chapters[0] == "Unreleased"


def test_the_source_distribution_builds_the_app_and_holds_its_documentation(package: tuple[Path, Path]) -> None:
    with tarfile.open(package[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert files_of_the_app() <= names
    assert {"README.md", "CHANGELOG.md", "LICENSE", "pyproject.toml", "docs/README.md"} <= names
    assert not {name for name in names if name.startswith(("tests/", "benchmarks/", "chaos/", "testproject/"))}


def test_the_index_will_show_its_description(package: tuple[Path, Path]) -> None:
    command = [sys.executable, "-m", "twine", "check", "--strict", *map(str, package)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
