"""Find the modules of the installed apps whose source declares tasks. Nothing is imported for it."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path

from django.apps import AppConfig, apps

APIS = ("django.tasks", "django_tasks", "pulse_django")
_SKIPPED_APPS = ("django", "django_tasks", "pulse_django")
_SKIPPED_FOLDERS = ("migrations", "test", "tests")
_TEST_FILE = re.compile(r"(tests?|conftest|test_.*|.*_test)\.py")
# Read as bytes first: most files do not mention an API of tasks, and need not be parsed.
_MENTIONS_AN_API = re.compile(rb"^\s*(from|import)\s+(django\b.*\btasks|django_tasks|pulse_django)\b", re.MULTILINE)


def modules_that_declare_tasks() -> list[str]:
    """Return their names. Tests, migrations and Django's own apps are left out."""
    found: set[str] = set()
    for app in apps.get_app_configs():
        if app.name.partition(".")[0] not in _SKIPPED_APPS:
            found |= set(_of_app(app))
    return sorted(found)


def _of_app(app: AppConfig) -> Iterator[str]:
    for folder, folders, files in os.walk(app.path):
        # Only packages: the folder of an app may also hold a virtual environment or node_modules.
        folders[:] = [
            one for one in folders if one not in _SKIPPED_FOLDERS and (Path(folder) / one / "__init__.py").exists()
        ]
        for name in files:
            path = Path(folder) / name
            if path.suffix == ".py" and not _TEST_FILE.fullmatch(name) and _declares_tasks(path):
                parts = path.relative_to(app.path).with_suffix("").parts
                yield ".".join([app.name, *(part for part in parts if part != "__init__")])


def _declares_tasks(path: Path) -> bool:
    try:
        source = path.read_bytes()
        return bool(_MENTIONS_AN_API.search(source)) and _has_a_task(ast.parse(source))
    except (OSError, SyntaxError, ValueError):  # its import will raise it
        return False


def _has_a_task(tree: ast.Module) -> bool:
    decorators, modules = _names_of_the_api(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if isinstance(called, ast.Name) and called.id in decorators:
                    return True
                if isinstance(called, ast.Attribute) and called.attr == "task" and ast.unparse(called.value) in modules:
                    return True
    return False


def _names_of_the_api(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Return the names that mean the decorator in this module, and those that mean a module that has it."""
    decorators: set[str] = set()
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            modules |= {one.asname or one.name for one in node.names if one.name in APIS}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for one in node.names:
                if one.name == "task" and (node.module or "").removesuffix(".tasks") in ("django", *APIS):
                    decorators.add(one.asname or one.name)
                elif f"{node.module}.{one.name}" in APIS:
                    modules.add(one.asname or one.name)
    return decorators, modules
