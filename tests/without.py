"""``python -m tests.without ROOM``: take a capability out of a copy of the project, and run the tests of all others.

Its folder goes, and the lines that name it: in the list of capabilities, the managers, the models, the public functions
and the pages. The initial migration is made anew. Tests that use it are left out, and so are those of documents.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent


class Room(NamedTuple):
    words: tuple[str, ...]  # a test in whose source one of them stands uses the capability
    # By file: texts, each of which stands there once and goes, or what stands there instead.
    lines: dict[str, tuple[str | tuple[str, str], ...]]
    functions: dict[str, tuple[str, ...]]  # by file: functions that go
    tests: tuple[str, ...] = ()  # that use it in a table of their module


ROOMS = {
    "amendments": Room(
        words=("amend",),
        lines={
            "pulse_django/__init__.py": ("    from .api import amend as amend\n", "amend "),
            "pulse_django/api.py": ("from .amendments import amending\n",),
            "pulse_django/capabilities.py": ("from .amendments import amending\n", "        amending.CAPABILITY,\n"),
            "pulse_django/managers.py": ("from .amendments.amend import amend\n", "    amend = amend\n"),
            "pulse_django/models.py": (
                "from .amendments.models import Amendment as Amendment\n",
                '            ("amend_job", _("Can change the arguments of waiting jobs")),\n',
            ),
            "pulse_django/console/jobs/admin.py": (
                "from pulse_django.amendments.page import AmendPage, amendments_of\n",
                "AmendPage, ",
                '            self.path("<path:object_id>/amend/", self.amend_view, "amend"),\n',
                "        amendments = amendments_of(job, with_arguments=sees_arguments)\n",
                ', [(one["at"], one["by"]) for one in amendments]',
                '            "amend_url": self.amend_url(request, job),\n            "amendments": amendments,\n',
            ),
            "tests/database.py": ('    "pulse_django_amendment",\n',),
            "tests/floors.py": ('    "amendments": "unique limits encryption expiry",\n',),
        },
        functions={"pulse_django/api.py": ("amend",)},
        tests=("test_a_job_that_is_set_aside_can_be_changed_and_stays_paused",),
    ),
    # The option stays, as all options do: a handler that is declared with it gets one job.
    "chunks": Room(
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
}

# Pages of documents, the public names and the files of statements tell of all capabilities.
_OF_ALL = ("tests/test_docs.py", "tests/test_package.py", "tests/test_new_option.py", "tests/sql", "tests/walk")
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
        # A module of tests that imports the room cannot be collected, and is left out with its tests.
        uses = [f for f in (folder / "tests").rglob("test_*.py") if f"pulse_django.{name}" in f.read_text()]
        ignored += [f"--ignore={file.relative_to(folder)}" for file in uses]
        tests = [*python, "pytest", "-p", "tests.left_out", "-m", "quick", "-q", *ignored, *arguments]
        return subprocess.run(tests, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
