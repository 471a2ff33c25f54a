"""One more option is declared in one place: a copy of the package gets one, and the files that changed are counted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.crash.processes import ROOT, database_url
from tests.new_option import ASKED, DECLARATION, MIGRATION, MODEL, VALUES, add_to, changed_sources

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "tests", "benchmarks", "chaos")


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of this tree with one more option."""
    copy = tmp_path_factory.mktemp("later") / "tree"
    shutil.copytree(ROOT, copy, ignore=LEFT_OUT)
    assert changed_sources(copy) == set()
    add_to(copy)
    run(copy, "-m", "testproject.initial_migration", PULSE_NO_SERVER="1")
    return copy


def run(tree: Path, *arguments: str, **env: str) -> str:
    command = [sys.executable, *arguments]
    around = os.environ | {"PYTHONPATH": str(tree), "DJANGO_SETTINGS_MODULE": "testproject.settings"} | env
    done = subprocess.run(command, cwd=tree, env=around, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"{arguments} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def scratch_database() -> Iterator[str]:
    """Make a database beside those of the tests; yield how to reach it."""
    address, name = urlsplit(database_url()), f"later_{os.getpid()}"
    with psycopg.connect(address._replace(path="/postgres").geturl(), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield address._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def test_adding_an_option_changes_four_source_files(tree: Path) -> None:
    assert changed_sources(tree) == {DECLARATION, VALUES, MODEL, MIGRATION}


def test_jobs_keep_it_workers_are_told_and_the_pages_show_it(tree: Path, pulse_db: None) -> None:
    """What the task and the call said: alone, with ``using()``, and as one of many."""
    with scratch_database() as url:
        run(tree, "manage.py", "migrate", DATABASE_URL=url)
        seen = json.loads(run(tree, "-c", ASKED, DATABASE_URL=url))
    assert seen["rows"] == seen["claimed"] == [5_000, 700, 5_000]
    assert seen["of the result"] == 700
    assert seen["in the task"] == "later.wrong: imaginary_limit: 99 is not within 100 to 1000000"
    assert seen["in a call"] == "later.plain: imaginary_limit: 1000001 is not within 100 to 1000000"
    page = seen["page"]
    assert "How large a result may be." in page
    assert "700" in page[page.index("Maximum result bytes") :][:500]
    assert "| `imaginary_limit` | yes | yes |  | 100 to 1,000,000 | How large a result may be. |" in seen["reference"]
