"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import pulse_django
from pulse_django import checks

PACKAGE = Path(pulse_django.__file__).parent
ROOT = PACKAGE.parent
SOURCES = sorted(path for path in PACKAGE.rglob("*.py") if "migrations" not in path.parts)
SAVE_SCHEDULES = ("console/schedules/admin.py", "management/commands/pulse_import_schedules.py", "schedules/forms.py")
WRITES = {"save", "update", "delete", "create", "bulk_create", "bulk_update", "get_or_create", "update_or_create"}


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_only_the_protocol_writes_to_jobs(path: Path) -> None:
    """No other module calls a writing method of the ORM, or holds SQL that writes to the jobs table."""
    if path.parent.name == "protocol":
        return
    if name_of(path) in ("execution/fencing.py", "testing/clock.py", *SAVE_SCHEDULES):
        return  # writes to the project's own rows; moves instants of jobs under test; their save() is the protocol's
    tree = ast.parse(path.read_text())
    calls = [
        f"{path.name}:{node.lineno}: .{node.func.attr}()"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES
    ]
    assert calls == []
    assert not re.search(r"(?i)(UPDATE|INSERT INTO|DELETE FROM)\s+pulse_django_(job|attempt)", path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_a_file_holds_one_idea(path: Path) -> None:
    lines = len(path.read_text().splitlines())
    assert lines <= 300, f"{lines} lines: which second idea does it hold?"


@pytest.mark.parametrize("path", [path for path in SOURCES if path.read_text().strip()], ids=name_of)
def test_a_file_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_no_clock_of_pythons_decides_anything(path: Path) -> None:
    if path.parent.name == "commands" or name_of(path) in ("worker/run_logs.py", "execution/log_records.py"):
        return  # people wait there, and a line of a log says what time it is
    assert not re.search(r"\btimezone\.now\(|\bdatetime\.now\(|\btime\.time\(|\butcnow\(", path.read_text())


@pytest.mark.parametrize("path", SOURCES, ids=name_of)
def test_nothing_is_unpickled_evaluated_or_imported_from_data(path: Path) -> None:
    assert not re.search(r"\b(pickle|marshal|shelve|yaml|eval|exec|import_string|__import__)\b", path.read_text())


def test_every_check_id_is_documented_where_it_is_made() -> None:
    used = set(re.findall(r"pulse_django\.[EW]\d{3}", "".join(path.read_text() for path in SOURCES)))
    assert checks.__doc__ is not None
    assert set(re.findall(r"pulse_django\.[EW]\d{3}", checks.__doc__)) == used


def test_the_app_depends_on_django_psycopg_and_cronsim_only() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(re.split(r"[><=]", dependency)[0] for dependency in project["dependencies"]) == [
        "cronsim",
        "django",
        "psycopg",
    ]
    roots = {
        name.split(".")[0]
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    import sys

    # asgiref is Django's own dependency.
    # The backport of an extra; what encrypts, and what writes for Prometheus, of others; a plugin only of pytest.
    extras = {"cryptography", "django_tasks", "opentelemetry", "prometheus_client", "pytest"}
    assert roots - set(sys.stdlib_module_names) <= {"django", "asgiref", "cronsim", "psycopg", "pulse_django", *extras}
