"""``python -m tests.without ROOM``: take a capability out of a copy of the project, and run the tests of all others.

Its folder goes, with what is built on it and what uses it (``tests.cut``), and the initial migration is made anew. The
columns of jobs stay. Tests that use it are left out, and so are those of documents.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.cut import Project
from tests.floors import BUILT_ON

ROOT = Path(__file__).parent.parent


class Room(NamedTuple):
    words: tuple[str, ...]  # a test in whose source one of them stands uses the capability
    edits: dict[str, tuple[tuple[str, str], ...]] = {}  # by file: a text that stands there once, and what replaces it
    files: tuple[str, ...] = ()  # outside its folder, which go with it
    tests: tuple[str, ...] = ()  # that use it in a table of their module


_OPTIONS = "pulse_django/queue/words/options.py"  # an option stays, and nothing uses it
_COMMANDS = "pulse_django/management/commands"
_READINGS = "pulse_django/metrics/exporters/readings.py"
_NO_PAUSE = (
    "FROM (SELECT '' AS queue, NULL::timestamptz AS paused_at, NULL::timestamptz AS paused_until, '' AS reason) AS none"
    " WHERE false"
)
RECIPES = {
    "amendments": Room(
        ("amend",),
        tests=(
            "test_a_job_that_is_set_aside_can_be_changed_and_stays_paused",
            "test_a_verb_moves_a_job_exactly_as_the_transition_table_says",
        ),
    ),
    "chunks": Room(("Chunk", "chunk=", "_chunks", "chunk_handlers", "chunking")),
    "sql_enqueue": Room(("DeclaredTask", "sql_enqueue"), files=("pulse_django/migrations/_enqueue.py",)),
    "expiry": Room(
        ("expires", ".expire("),
        tests=(
            "test_a_verb_moves_a_job_exactly_as_the_transition_table_says",
            "test_every_column_is_carried_or_given_or_belongs_to_a_lease",
        ),
    ),
    "on_dead": Room(("on_dead",), tests=("test_every_column_is_carried_or_given_or_belongs_to_a_lease",)),
    "unique": Room(
        ("unique", "idempotency_key", "with_a_key"),
        {_OPTIONS: (('Made(Unique, "Unique(...)")', 'CheckedElsewhere("nothing")'),)},
        tests=("test_a_key_is_taken_for_as_long_as_its_job_is_kept",),
    ),
    "schedules": Room(
        ("schedule",),
        {
            _OPTIONS: (('Made(Timing, "Cron(...) or Every(...)")', 'CheckedElsewhere("nothing")'),),
            _READINGS: (
                (
                    'Schedule.objects.filter(next_at__isnull=False).order_by("next_at").values("next_at")',
                    'Minute.objects.none().values("minute")',
                ),
            ),
        },
        files=(f"{_COMMANDS}/pulse_schedules.py", f"{_COMMANDS}/pulse_import_schedules.py"),
        tests=("test_the_words_of_other_queues_say_the_line_to_write",),
    ),
    "pauses": Room(
        ("pause",),
        {
            "pulse_django/models.py": (("class Queue(Pause)", "class Queue(Job)"),),
            "pulse_django/health/conditions/queues.py": (
                ('        repair=Repair(says="Resume the queue.", act=_resume),\n', ""),
            ),
            "pulse_django/health/conditions/shared_queries.py": (
                ("({first_that_can_start(IN_LANE)})", "(SELECT next_run_at FROM pulse_django_job_hot WHERE {IN_LANE})"),
                ("FROM pulse_django_pause\n    WHERE {IS_OF_QUEUE} AND {IS_IN_FORCE}", _NO_PAUSE),
            ),
            "pulse_django/health/conditions/server.py": (
                ("FROM pulse_django_pause\n    WHERE {IS_OF_QUEUE}", _NO_PAUSE),
            ),
            "pulse_django/health/snapshot.py": (
                ("FROM pulse_django_pause WHERE {IS_OF_QUEUE} AND {IS_IN_FORCE}", _NO_PAUSE),
            ),
            "pulse_django/console/jobs/sidebar.py": (
                ("FROM pulse_django_pause WHERE {IS_OF_QUEUE} ORDER BY queue", _NO_PAUSE),
            ),
            "pulse_django/console/tasks/admin.py": (
                ("{one.task for one in paused_tasks(alias) if not one.queue}", "set()"),
            ),
        },
        files=(f"{_COMMANDS}/pulse_pause.py", f"{_COMMANDS}/pulse_resume.py"),
    ),
    "workflows": Room(
        ("batch", "Batch", "workflow", "Workflow", "chain(", "chord("),
        {
            "pulse_django/workflows/models.py": (("models.ForeignKey(StoredBatch, ", 'models.ForeignKey("self", '),),
            "pulse_django/metrics/minute_stats.py": (
                (
                    """    SELECT kind, EXTRACT(epoch FROM finished_at - created_at)::float8 AS took
    FROM pulse_django_batch
    WHERE finished_at IS NOT NULL AND finished_at >= %(begin)s AND finished_at < %(end)s
        AND cancelled_at IS NULL AND parent_id IS NULL
""",
                    "SELECT '' AS kind, 0 AS took WHERE %(begin)s > %(end)s",
                ),
            ),
            "pulse_django/health/snapshot.py": (
                ("SELECT 1 FROM pulse_django_batch WHERE finished_at IS NULL ORDER BY id LIMIT {COUNTED}", "SELECT"),
                (
                    """SELECT 1 FROM pulse_django_batch AS batch
            WHERE finished_at IS NULL AND EXISTS (
                SELECT 1 FROM pulse_django_job_hot
                WHERE batch_id = batch.id AND batch_id IS NOT NULL AND finished_at IS NOT NULL
            )
            ORDER BY id
            LIMIT {COUNTED}
""",
                    "SELECT",
                ),
            ),
        },
        files=(
            f"{_COMMANDS}/pulse_workflows.py",
            "pulse_django/testing/workflows.py",
            *(f"pulse_django/console/mass/{name}.py" for name in ("operation", "totals", "work")),
        ),
        tests=(
            "test_every_column_is_carried_or_given_or_belongs_to_a_lease",
            "test_celerys_words_say_what_to_write_instead",
            "test_a_verb_moves_a_job_exactly_as_the_transition_table_says",
            "test_many_are_an_operation_that_workers_do",
        ),
    ),
    "limits": Room(
        ("limit=", "Limit(", "imiter", "--limit", "fair_by", "declared_limits", "change_limits"),
        {
            _READINGS: (("Exists(Limiter.objects.all())", "Exists(Release.objects.none())"),),
            "tests/pauses/test_facts.py": (
                ('OF_WAITING |= {"limiter-starved": SIMPLE["limiter-starved"]}\n', ""),
                (', "ready-overdue")', ")"),
            ),
            _OPTIONS: (('Made(Limit, "Limit(...)")', 'CheckedElsewhere("nothing")'),),
            "pulse_django/health/conditions/server.py": (
                ("FROM pulse_django_bucket", "FROM (SELECT '' AS scope, now() AS at WHERE false) AS none"),
            ),
            "pulse_django/conf.py": (("queue_limits: Mapping[str, Limit]", "queue_limits: Mapping[str, float]"),),
        },
        files=(f"{_COMMANDS}/pulse_limits.py",),
        tests=(
            *("test_the_words_of_other_queues_say_the_line_to_write", "test_a_range_of_keys_moves"),
            *("test_jobs_that_no_watchdog_brings_back_are_found", "test_every_condition_was_found"),
            *("test_so_does_a_queue_with_a_limit", "test_every_admin_of_ours_is_covered"),
            *("test_every_problem_is_found", "test_the_limit_of_a_queue_holds_for_chunks"),
            *("test_what_a_condition_found_is_translated", "test_every_command_is_there"),
        ),
    ),
}

# Pages of documents, the public names, the files of statements and the bugs of chaos are about all capabilities.
_OF_ALL = (
    *("tests/test_docs.py", "tests/test_package.py", "tests/test_new_option.py", "tests/test_mutants.py"),
    *("tests/sql", "tests/walk", "tests/test_without.py", "tests/test_targets.py"),
)
_SHORT = ("tests/queue", "tests/run")
_IMPORTS_ALL = """import django, importlib, pkgutil
django.setup()
import pulse_django
for module in pkgutil.walk_packages(pulse_django.__path__, "pulse_django."):
    if "opentelemetry" not in module.name:
        importlib.import_module(module.name)
"""
_LEAVES_OUT = """import inspect


def pytest_collection_modifyitems(config: object, items: list) -> None:
    for item in list(items):
        try:
            source = inspect.getsource(item.function) + inspect.getsource(item.module).split("def test_", 1)[0]
        except OSError:
            continue
        if any(word in source for word in {words}) or item.originalname in {tests}:
            items.remove(item)
"""


def built_on(name: str) -> set[str]:
    """Return a room, and the rooms that are built on it."""
    found = {name}
    while more := {room for room, others in BUILT_ON.items() if found & {*others.split()}} - found:
        found |= more
    return found


def take_out(name: str, folder: Path) -> set[str]:
    """Remove a room and the rooms that are built on it, and return their names."""
    rooms = built_on(name)
    recipes = [RECIPES[room] for room in rooms]
    for file, edits in [item for recipe in recipes for item in recipe.edits.items()]:
        text = (folder / file).read_text()
        for old, new in edits:
            if text.count(old) != 1:
                raise SystemExit(f"{file} has {old!r} {text.count(old)} times, and not once")
            text = text.replace(old, new)
        (folder / file).write_text(text)
    floors = folder / "tests/floors.py"  # lists of names, in texts
    names = rf"\b(?:{'|'.join(rooms)})\b"
    text = re.sub(rf'^    "{names}": .*\n', "", floors.read_text(), flags=re.MULTILINE)
    floors.write_text(re.sub(rf"{names}(?!\.models)(\.\w+)*", "", text))
    project = Project(folder, rooms, {file for recipe in recipes for file in recipe.files})
    project.cut()
    for file in ("docs/explanation/security.md", "pulse_django/migrations/_schema.py"):
        (folder / file).write_text(without_tables((folder / file).read_text(), project.tables))
    sent = folder / "tests/sql/sent.py"  # its statements are those of the whole package
    sent.write_text(sent.read_text().replace("MADE_WITH = (6, 1)", "MADE_WITH = (0, 0)"))
    words = [word for recipe in recipes for word in recipe.words]
    tests = [test for recipe in recipes for test in recipe.tests]
    (folder / "tests/left_out.py").write_text(_LEAVES_OUT.format(words=words, tests=tests))
    return rooms


def without_tables(text: str, tables: set[str]) -> str:
    """Remove tables from statements that grant rights or set storage, and statements about no other table."""
    if not tables:
        return text
    table = rf"(?:{'|'.join(tables)})\b"
    text = re.sub(rf"{table},\s+|,\s+{table}(?!\()", "", text)
    text = re.sub(rf"ALTER TABLE {table} SET \([^)]*\);?", "", text)
    return re.sub(rf"^GRANT [^;]* ON {table}[^;]*;[^\n]*\n", "", text, flags=re.MULTILINE)


def copied() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="without-", dir="/tmp") as made:
        folder = Path(made)
        for file in _git("ls-files", "--cached", "--others", "--exclude-standard"):
            if (ROOT / file).exists():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / file, folder / file)
        yield folder


def _git(*arguments: str) -> list[str]:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split()


def changed_rooms() -> list[str]:
    """Return at most two rooms that the last change touched, or the first one if it touched none."""
    base = _git("merge-base", "HEAD", "origin/main")
    since = "HEAD~1" if base in ([], _git("rev-parse", "HEAD")) else base[0]
    touched = {file.split("/")[1] for file in _git("diff", "--name-only", since) if file.startswith("pulse_django/")}
    return [name for name in RECIPES if name in touched][:2] or ["chunks"]


def tested_without(name: str, *arguments: str) -> int:
    """Take the room out of a copy, check what is left, and test it. Return the code of pytest."""
    with contextmanager(copied)() as folder:
        print(f"Without {' '.join(sorted(take_out(name, folder)))}", flush=True)  # noqa: T201 - what this is about
        python = [sys.executable, "-m"]
        environment = os.environ | {"PYTHONPATH": str(folder), "DJANGO_SETTINGS_MODULE": "testproject.settings"}
        for command in (
            [*python, "ruff", "check", "--isolated", "--no-cache", "--quiet", "--select", "F821", "pulse_django"],
            [*python, "testproject.initial_migration"],
            [sys.executable, "-c", _IMPORTS_ALL],
            [sys.executable, "manage.py", "check"],
        ):
            subprocess.run(command, cwd=folder, env=environment | {"PULSE_NO_SERVER": "1"}, check=True)
        ignored = [f"--ignore={file}" for file in _OF_ALL]
        tests = [*python, "pytest", "-p", "tests.left_out", "-m", "quick", "-q", *ignored, *arguments]
        return subprocess.run(tests, cwd=folder, env=environment, check=False).returncode


def main(*arguments: str) -> int:
    if arguments and arguments[0] in RECIPES:
        return tested_without(*arguments)
    if arguments and not arguments[0].startswith("-"):
        raise SystemExit(f"ROOM is one of {', '.join(RECIPES)}")
    return max(tested_without(name, *_SHORT, *arguments) for name in changed_rooms())


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
