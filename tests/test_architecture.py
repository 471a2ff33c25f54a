"""The rules of the house that no linter knows."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pulse_django import checks
from tests.floors import COMPOSED, KERNEL, PACKAGE, ROOMS, floor_of, holds_a_verb, imports, modules

ROOT = PACKAGE.parent
TEXTS = {
    str(path.relative_to(PACKAGE)): path.read_text()
    for path in sorted(PACKAGE.rglob("*.py"))
    if "migrations" not in path.parts
}
SAVE_SCHEDULES = ("schedules/console/admin.py", "management/commands/pulse_import_schedules.py", "schedules/forms.py")
WRITES = {"save", "update", "delete", "create", "bulk_create", "bulk_update", "get_or_create", "update_or_create"}


@cache
def trees() -> dict[str, ast.Module]:
    """Every source, parsed once for all rules."""
    return {name: ast.parse(text) for name, text in TEXTS.items()}


def found(pattern: str, names: Iterable[str]) -> list[str]:
    """Where the pattern stands: file, line and the words themselves."""
    places = []
    for name in names:
        for match in re.finditer(pattern, TEXTS[name]):
            line = TEXTS[name].count("\n", 0, match.start()) + 1
            places.append(f"{name}:{line}: {match[0]}")
    return places


# Hints that name a class of a higher floor.
UPWARD_HINTS = {
    ("queue.capability", "queue.claim"),
    ("queue.capability", "run.registry"),
    ("schedules.tick", "models"),
    ("schedules.verbs", "models"),
}


def test_there_are_sources_to_look_at() -> None:
    assert {"api.py", "queue/claim.py", "worker/keeper.py"} <= TEXTS.keys()
    assert len(TEXTS) > 300


def _room_of(module: str) -> str:
    return module.partition(".")[0]


def test_imports_run_downward() -> None:
    """Type hints count: a reader follows them as well."""
    found = [
        one for one in imports() if one.module and not (one.is_hint and (one.importer, one.module) in UPWARD_HINTS)
    ]
    faults = [str(one) for one in found if floor_of(one.importer) > floor_of(one.module)]
    assert len(found) > 2_000
    assert not faults, "\n".join(faults)


def test_the_kernel_imports_no_room() -> None:
    faults = [
        str(one)
        for one in imports()
        if _room_of(one.importer) in KERNEL and one.importer not in COMPOSED and _room_of(one.module) in ROOMS
    ]
    assert not faults, "\n".join(faults)


def test_rooms_import_the_rooms_that_they_declare() -> None:
    found = {
        (_room_of(one.importer), _room_of(one.module))
        for one in imports()
        if _room_of(one.importer) in ROOMS and _room_of(one.module) in ROOMS
    }
    declared = {(room, other) for room, others in ROOMS.items() for other in others.split()}
    assert {(room, other) for room, other in found if room != other} == declared


def test_an_app_can_import_the_names_for_declarations_before_the_apps_are_ready() -> None:
    code = "from django.conf import settings; settings.configure(); from pulse_django import Chunk, Cron, Limit, task"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_one_module_names_all_capabilities() -> None:
    installed = {_room_of(one.module) for one in imports() if one.importer == "capabilities"}
    assert ROOMS.keys() - {"health"} <= installed
    handing_in = {name for name, path in modules().items() if "= Capability(" in path.read_text()}
    assert {one.module for one in imports() if one.name == "CAPABILITY"} <= handing_in


def test_only_the_protocol_writes_to_jobs() -> None:
    """No other module calls a writing method of the ORM, or holds SQL that writes to the jobs table."""
    # One writes to the project's own rows; one moves instants of jobs under test; the save() of the others is the
    # protocol's.
    may_write = ("run/fencing.py", "testing/drain.py", *SAVE_SCHEDULES)
    names = [
        name for name in TEXTS if not holds_a_verb(name.removesuffix(".py").replace("/", ".")) and name not in may_write
    ]
    faults = [
        f"{name}:{node.lineno}: .{node.func.attr}()"
        for name in names
        for node in ast.walk(trees()[name])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in WRITES
    ]
    faults += found(r"(?i)(UPDATE|INSERT INTO|DELETE FROM)\s+pulse_django_(job|attempt)", names)
    assert not faults, "\n".join(faults)


def test_a_file_says_what_it_is() -> None:
    faults = [name for name, text in TEXTS.items() if text.strip() and not ast.get_docstring(trees()[name])]
    assert not faults, "no docstring:\n" + "\n".join(faults)


def test_no_clock_of_pythons_decides_anything() -> None:
    # People wait for commands, and a line of a log says what time it is.
    may_tell = ("worker/run_events.py", "run/django_log.py", "worker/reloader.py")  # the times of files are by it
    names = [name for name in TEXTS if Path(name).parent.name != "commands" and name not in may_tell]
    faults = found(r"\btimezone\.now\(|\bdatetime\.now\(|\btime\.time\(|\butcnow\(", names)
    assert not faults, "\n".join(faults)


def test_nothing_is_unpickled_evaluated_or_imported_from_data() -> None:
    faults = found(r"\b(pickle|marshal|shelve|yaml|eval|exec|import_string|__import__)\b", TEXTS)
    assert not faults, "\n".join(faults)


def test_every_check_id_is_documented_where_it_is_made() -> None:
    used = set(re.findall(r"pulse_django\.[EW]\d{3}", "".join(TEXTS.values())))
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
        for tree in trees().values()
        for node in ast.walk(tree)
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
