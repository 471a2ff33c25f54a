"""The earlier states of the schema, and the code of this repository's own history that knew each as its newest."""

from __future__ import annotations

import io
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.crash.processes import ROOT

MIGRATIONS = "pulse_django/migrations"


@dataclass(frozen=True, kw_only=True)
class Earlier:
    """A state of the schema before the present one, and code to work on it."""

    state: str  # its last migration
    code: str | None  # a revision; None: history holds no older code
    knows: str = ""  # the last migration that this code has

    @property
    def code_can_work(self) -> bool:
        """Whether this code finds all that it needs in this state."""
        return self.knows <= self.state


def earlier_states() -> list[Earlier]:
    """Return them from the oldest to the newest.

    Migrations that came together were never the newest one by one, but an upgrade that is interrupted stops there: then
    the code is that of the state before. Before the very first there was none, and the code of the next has to do.
    """
    names = sorted(path.stem for path in (ROOT / MIGRATIONS).glob("[0-9]*.py"))
    older = {name: revision for name, revision in newest_revisions().items() if name < names[-1]}
    return [_earlier(name, older) for name in names[:-1]]


def _earlier(state: str, older: dict[str, str]) -> Earlier:
    before = [name for name in sorted(older) if name <= state]
    knows = before[-1] if before else min(older, default="")
    return Earlier(state=state, code=older.get(knows), knows=knows)


def newest_revisions() -> dict[str, str]:
    """Return by migration the newest revision in which it was the last; nothing where there is no history."""
    found: dict[str, str] = {}
    until = "HEAD"
    for revision, added in _revisions_that_added_migrations():
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
