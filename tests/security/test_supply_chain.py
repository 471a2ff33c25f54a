"""What comes with Pulse: Django and psycopg, and nothing that runs while it is installed."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.crash.processes import ROOT, environment

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# Django 5.2 has no Tasks: its backport stands in. ``environ`` is the test project's, for its settings.
_ALONE = """
import importlib, pkgutil, sys
from importlib.machinery import PathFinder

ALLOWED = {
    "django", "asgiref", "psycopg", "psycopg_binary", "psycopg_c", "psycopg_pool", "sqlparse", "typing_extensions",
    "cronsim", "pulse_django", "testproject", "django_tasks", "django_stubs_ext", "environ",
    "tests", "tzdata",
}

class OnlyThose(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        root = name.partition(".")[0]
        is_allowed = root in ALLOWED or root in sys.stdlib_module_names or root.startswith("_")
        return super().find_spec(name, path, target) if is_allowed else None

sys.meta_path[:] = [OnlyThose if finder is PathFinder else finder for finder in sys.meta_path]
import django
django.setup()
import pulse_django

refused = []
for found in pkgutil.walk_packages(pulse_django.__path__, "pulse_django."):
    try:
        importlib.import_module(found.name)
    except Exception as error:
        refused.append(f"{found.name}: {type(error).__name__}")
print(*refused, sep="\\n")
"""
OPTIONAL = {
    "pulse_django.metrics.exporters.opentelemetry: ImproperlyConfigured",
    "pulse_django.metrics.exporters.opentelemetry: ModuleNotFoundError",
    "pulse_django.metrics.exporters.prometheus: ImproperlyConfigured",
    "pulse_django.pytest_plugin: ModuleNotFoundError",
}


def test_everything_but_the_named_extras_works_with_django_and_psycopg_alone() -> None:
    """In a process that finds no other package, whatever is installed here."""
    env = environment(PULSE_NO_SERVER="1")
    done = subprocess.run(
        [sys.executable, "-c", _ALONE], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    refused = set(done.stdout.split("\n")) - {""}
    assert refused <= OPTIONAL
    assert any("prometheus" in one for one in refused), "or nothing was kept from it"


def test_installing_it_brings_three_packages_and_runs_no_code_of_ours() -> None:
    names = {dependency.split(">")[0] for dependency in PROJECT["project"]["dependencies"]}
    assert names == {"cronsim", "django", "psycopg"}
    assert PROJECT["build-system"]["requires"] == ["hatchling>=1.26"]
    assert "hooks" not in PROJECT.get("tool", {}).get("hatch", {}).get("build", {})
    for name in ("setup.py", "hatch_build.py"):
        assert not (ROOT / name).exists()
    assert list((ROOT / "pulse_django").rglob("*.pth")) == []
    assert "scripts" not in PROJECT["project"]
