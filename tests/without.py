"""``python -m tests.without ROOM``: take a capability out of a copy of the project, and run the tests of all others.

Its folder goes, and the lines that name it: in the list of capabilities, the managers, the models, the public functions
and the pages. The initial migration is made anew. Tests that use it are left out, and so are those of documents.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Room(NamedTuple):
    names: tuple[str, ...]  # public ones, and of its tables
    words: tuple[str, ...]  # a test in whose source one of them stands uses the capability
    # By file: texts, each of which stands there once and goes, or what stands there instead.
    lines: dict[str, tuple[str | tuple[str, str], ...]]
    functions: dict[str, tuple[str, ...]]  # by file: functions that go
    tests: tuple[str, ...] = ()  # that use it in a table of their module


ROOMS = {
    "amendments": Room(
        names=("amend", "Amendment"),
        words=("amend",),
        lines={
            "pulse_django/__init__.py": ("    from .api import amend as amend\n", "amend "),
            "pulse_django/api.py": ("from .amendments import amending\n", "from .amendments.amend import Amended\n"),
            "pulse_django/capabilities.py": ("from .amendments import amending\n", "        amending.CAPABILITY,\n"),
            "pulse_django/managers.py": ("from .amendments.amend import amend\n", "    amend = amend\n"),
            "pulse_django/models.py": (
                "from .amendments.models import Amendment as Amendment\n",
                '            ("pulse_amend_jobs", _("Can change the arguments of waiting jobs")),\n',
            ),
            "pulse_django/console/jobs/admin.py": (
                "from pulse_django.amendments.page import AmendPage, amendments_of\n",
                "AmendPage, ",
                '            self.path("<path:object_id>/amend/", self.amend_view, "amend"),\n',
                "        amendments = amendments_of(job, with_arguments=sees_arguments)\n",
                ', [(one["at"], one["by"]) for one in amendments]',
                '            "amend_url": self.amend_url(request, job),\n            "amendments": amendments,\n',
            ),
            "docs/explanation/security.md": (
                "GRANT INSERT ON pulse_django_amendment TO pulse_operator;\n",
                "GRANT SELECT, DELETE ON pulse_django_amendment TO pulse_watchdog, pulse_operator;\n",
            ),
            "tests/database.py": ('    "pulse_django_amendment",\n',),
            "tests/security/drive.py": (
                "from pulse_django.amendments.amend import read_for_amending\n",
                "        amending_jobs,\n",
            ),
            "tests/security/verbs.py": ('    "amend": (amending, {OPERATOR}),\n',),
            "tests/floors.py": ('    "amendments": "unique limits encryption expiry",\n',),
        },
        functions={
            "pulse_django/api.py": ("amend",),
            "tests/security/drive.py": ("amending_jobs",),
            "tests/security/verbs.py": ("amending",),
        },
        tests=("test_a_job_that_is_set_aside_can_be_changed_and_stays_paused",),
    ),
    # The option stays, as all options do: a handler that is declared with it gets one job.
    "chunks": Room(
        names=("Chunk", "ChunkItem"),
        words=("Chunk", "chunk=", "chunk_handlers", "of_chunks", "chunking"),
        lines={
            "pulse_django/__init__.py": (
                "    from .chunks.chunk import Chunk as Chunk\n    from .chunks.chunk import ChunkItem as ChunkItem\n",
                '    "chunks.chunk": "Chunk ChunkItem",\n',
            ),
            "pulse_django/capabilities.py": (
                "from .chunks import gatherer as chunking\n",
                "        chunking.CAPABILITY,\n",
            ),
            "pulse_django/tasks.py": (
                "from .chunks.chunk import acall_alone, call_alone, check_chunk\n",
                "    from .chunks.chunk import Chunk\n",
                " call_alone(self, args, kwargs) if self.chunk else",
                "acall_alone(self, args, kwargs) if self.chunk else ",
                "        check_chunk(self, self)\n",
            ),
            "tests/floors.py": (
                '    "chunks": "limits",\n',
                " chunks.gatherer",
                ("limits.keys chunks shards.moving", "limits.keys shards.moving"),
            ),
        },
        functions={},
    ),
    "sql_enqueue": Room(
        names=("DeclaredTask",),
        words=("DeclaredTask", "sql_enqueue"),
        lines={
            "pulse_django/capabilities.py": (
                "from .sql_enqueue import loop as sql_enqueue\n",
                "        sql_enqueue.CAPABILITY,\n",
            ),
            "pulse_django/models.py": ("from .sql_enqueue.models import DeclaredTask as DeclaredTask\n",),
            "pulse_django/migrations/_schema.py": (
                "from ._enqueue import DROP, FUNCTION\n",
                """        if found is _days.TWO_LEVELS:  # its statements are not those that Citus takes
            cursor.execute("SELECT pg_catalog.quote_ident(pg_catalog.current_schema())")
            cursor.execute(FUNCTION.replace("{home}", cursor.fetchone()[0]))
""",
                "        cursor.execute(DROP)\n",
            ),
            "docs/explanation/security.md": (
                "GRANT SELECT, INSERT, UPDATE, DELETE ON pulse_django_declared_task TO pulse_worker;\n",
            ),
            "tests/database.py": ('    "pulse_django_declared_task",\n',),
            "tests/security/drive.py": ("DeclaredTask, ", "    declaring_tasks,\n"),
            "tests/floors.py": ('    "sql_enqueue": "encryption limits unique",\n',),
        },
        functions={"tests/security/drive.py": ("declaring_tasks",)},
    ),
}

# Pages of documents, the public names, the files of statements and the bugs of chaos are about all capabilities.
_OF_ALL = (
    *("tests/test_docs.py", "tests/test_package.py", "tests/test_new_option.py", "tests/test_mutants.py"),
    *("tests/sql", "tests/walk"),
)
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


def take_out(name: str, folder: Path) -> None:
    room = ROOMS[name]
    shutil.rmtree(folder / "pulse_django" / name)
    for file, lines in room.lines.items():
        text = (folder / file).read_text()
        for line in lines:
            old, new = line if isinstance(line, tuple) else (line, "")
            if text.count(old) != 1:
                raise SystemExit(f"{file} has {old!r} {text.count(old)} times, and not once")
            text = text.replace(old, new)
        (folder / file).write_text(text)
    for file, names in room.functions.items():
        parts = (folder / file).read_text().split("\n\n\n")
        kept = [part for part in parts if not part.startswith(tuple(f"def {function}(" for function in names))]
        (folder / file).write_text("\n\n\n".join(kept))
    sent = folder / "tests/sql/sent.py"  # its statements are those of the whole package
    sent.write_text(sent.read_text().replace("MADE_WITH = (6, 1)", "MADE_WITH = (0, 0)"))
    (folder / "tests/left_out.py").write_text(
        _LEAVES_OUT.replace("{words}", repr(room.words)).replace("{tests}", repr(room.tests))
    )


def modules_that_use(name: str, folder: Path) -> list[str]:
    """Return the modules of tests that cannot be collected without the room: they import it, or one another."""
    public = rf"from pulse_django(\.models)? import (\([^)]*|[^\n(]*)\b({'|'.join(ROOMS[name].names)})\b"
    imported = [rf"pulse_django\.{name}", rf"tests\.{name}", public]
    left = {str(file.relative_to(folder)): file.read_text() for file in (folder / "tests").rglob("test_*.py")}
    found: list[str] = []
    while more := [file for file, text in left.items() if re.search("|".join(imported), text)]:
        found += more
        left = {file: text for file, text in left.items() if file not in more}
        imported += [re.escape(file.removesuffix(".py").replace("/", ".")) for file in more]
    return found


def main(name: str, *arguments: str) -> int:
    if name not in ROOMS:
        raise SystemExit(f"ROOM is one of {', '.join(ROOMS)}")
    with tempfile.TemporaryDirectory(prefix="without-", dir="/tmp") as made:
        folder = Path(made)
        tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
        for file in tracked.stdout.split("\0")[:-1]:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / file, folder / file)
        take_out(name, folder)
        python = [sys.executable, "-m"]
        environment = os.environ | {"PYTHONPATH": str(folder)}
        made_anew = [*python, "testproject.initial_migration"]
        subprocess.run(made_anew, cwd=folder, env=environment | {"PULSE_NO_SERVER": "1"}, check=True)
        ignored = [f"--ignore={file}" for file in (*_OF_ALL, f"tests/{name}")]
        ignored += [f"--ignore={file}" for file in modules_that_use(name, folder)]
        tests = [*python, "pytest", "-p", "tests.left_out", "-m", "quick", "-q", *ignored, *arguments]
        return subprocess.run(tests, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
