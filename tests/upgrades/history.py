"""The earlier states of the schema, and the code of this repository's own history that knew each as its newest."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.crash.processes import ROOT

MIGRATIONS = "pulse_django/migrations"

NEXT = """
from django.db import migrations


class Migration(migrations.Migration):
    atomic = False
    dependencies = [("pulse_django", "{newest}")]
    operations = [
        migrations.RunSQL("ALTER TABLE pulse_django_job ADD COLUMN next_column integer"),
        migrations.RunSQL("CREATE INDEX CONCURRENTLY pulse_job_next ON pulse_django_job_hot (next_column)"),
    ]
"""


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A state of the schema before the present one, and code to work on it."""

    state: str  # its last migration
    code: str | None  # a revision; None: history holds no older code
    knows: str = ""  # the last migration that this code has


def earlier_states() -> list[Earlier]:
    """Return them from the oldest to the newest.

    Migrations that came together were never the newest one by one, but an upgrade that is interrupted stops there: then
    the code is that of the state before.
    """
    names = migrations_in(ROOT)
    revisions = newest_revisions()
    return [_earlier(name, {known: code for known, code in revisions.items() if known <= name}) for name in names[:-1]]


def _earlier(state: str, revisions: dict[str, str]) -> Earlier:
    knows = max(revisions, default="")
    return Earlier(state=state, code=revisions.get(knows), knows=knows)


def migrations_in(tree: Path) -> list[str]:
    return sorted(path.stem for path in (tree / MIGRATIONS).glob("[0-9]*.py"))


def add_a_migration(folder: Path) -> Path:
    """Copy this tree and add a migration, as a later release would: a column, and an index beside a live queue."""
    shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".*", "__pycache__", "tests", "docs", "benchmarks"))
    [*_, newest] = migrations_in(folder)
    (folder / MIGRATIONS / f"{int(newest[:4]) + 1:04d}_next.py").write_text(NEXT.format(newest=newest))
    return folder


def newest_revisions() -> dict[str, str]:
    """Return by migration the newest revision in which it was the last; nothing where there is no history."""
    found: dict[str, str] = {}
    until, present = "HEAD", migrations_in(ROOT)
    for revision, names in _revisions_that_added_migrations():
        added = [name for name in names if name in present]  # others were squashed
        if not added:
            continue
        found.setdefault(max(added), until)
        until = f"{revision}^1"
    return found


def _revisions_that_added_migrations() -> Iterator[tuple[str, Sequence[str]]]:
    """The newest first."""
    asked = ("log", "-m", "--first-parent", "--no-renames", "--diff-filter=A", "--name-only", "--format=@%H")
    for block in _git(*asked, "--", MIGRATIONS).decode().split("@")[1:]:
        revision, *paths = block.split()
        if added := [Path(path).stem for path in paths if Path(path).name[0].isdigit()]:
            yield revision, added


def export(revision: str, folder: Path) -> Path:
    """Write the tree of a revision into a folder."""
    with tarfile.open(fileobj=io.BytesIO(_git("archive", "--format=tar", revision))) as archive:
        archive.extractall(folder, filter="data")
    return folder


def _git(*arguments: str) -> bytes:
    """Return what git says; nothing if there is no git, or no history here."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, timeout=30)
    except FileNotFoundError:
        return b""
    return b"" if done.returncode else done.stdout
