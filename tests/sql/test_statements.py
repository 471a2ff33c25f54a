"""Every statement stands whole in a file of this folder, and no other is sent (docs/adr/0089-golden-sql.md).

Above each stands the function that sends it, and for which jobs of ``lives.py``. What has no jobs is sent by the drive
of ``tests/security/drive.py``, which leads to what is rare. ``make sql`` writes the files anew.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pglast.parser import fingerprint

from pulse_django.models import Job
from pulse_django.queue.database.dialects import statements_for
from pulse_django.queue.prune import Carrying
from pulse_django.queue.words.states import Status
from tests.factories import lease_of, make_job
from tests.faults import all_faults
from tests.security import drive

from .differences import OF_CITUS, Written
from .layout import key_of, laid_out
from .lives import ON_CITUS, lives
from .sent import FOLDER, WRITES, Sent, Unknown, is_comparable, recording

pytestmark = pytest.mark.skipif(not is_comparable(), reason="the files have what another Django compiles")


class Entry(NamedTuple):
    """A statement, and the jobs that get it."""

    sent: Sent
    jobs: list[str]

    def text(self, statement: str) -> str:
        others = [name for name in lives() if name not in self.jobs]
        jobs = {(): "every job", (ON_CITUS,): f"every job, not {ON_CITUS}"}.get((*others,), ", ".join(self.jobs))
        return f"-- {self.sent.function}(){jobs and ': '}{jobs}\n{statement};\n"


Entries = dict[Path, dict[str, Entry]]


@pytest.fixture(scope="module")
def entries(django_db_setup: None, django_db_blocker: Any) -> Entries:
    found: Entries = {}
    with django_db_blocker.unblock():
        statements_for(Carrying, "default")  # asked once in a process
        for name, life in lives().items():
            record(found, life, name)
        record(found, lambda: drive.drive(*drive.OWN))
    return found


def record(found: Entries, part: Callable[[], object], jobs: str = "") -> None:
    def keep(sent: Sent) -> None:
        of_file = found.setdefault(sent.path, {})
        if jobs:
            entry = of_file.setdefault(sent.statement, Entry(sent, []))
            if jobs not in entry.jobs:
                entry.jobs.append(jobs)
        elif key_of(sent.statement) not in {key_of(one) for one in of_file}:
            of_file[sent.statement] = Entry(sent, [])

    with recording(keep):
        drive.drive(part)


def texts(entries: Entries) -> dict[Path, str]:
    """Return what each file is to hold: its functions as they stand in the module, those for Citus as differences."""
    files: dict[Path, str] = {}
    written: Written | None = None
    for path, found in sorted(entries.items(), key=lambda item: (item[0].is_relative_to(OF_CITUS), item[0])):
        spell: Callable[[str], str] = laid_out
        if path.is_relative_to(OF_CITUS):
            written = written or Written(files)
            spell = partial(written.difference_of, path=path)
        in_order = sorted(found.values(), key=lambda entry: entry.sent.line)
        files[path] = "\n".join(entry.text(spell(entry.sent.statement)) for entry in in_order)
    return files


def test_each_statement_is_as_the_files_have_it(entries: Entries) -> None:
    wanted, there = texts(entries), set(FOLDER.rglob("*.sql"))
    if WRITES:
        for path in there - wanted.keys():
            path.unlink()
        for path, text in wanted.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return
    with all_faults() as about:
        for path in sorted(there | wanted.keys()):
            before = path.read_text() if path in there else ""
            changes = difflib.unified_diff(before.splitlines(), wanted.get(path, "").splitlines(), n=8, lineterm="")
            with about(str(path.relative_to(FOLDER))):
                assert not (changed := "\n".join(changes)), f"`make sql` writes the files anew\n{changed}"


def test_the_layout_changes_no_statement(entries: Entries) -> None:
    """By the parse tree."""
    with all_faults() as about:
        for found in entries.values():
            for statement in found:
                with about(statement):
                    assert fingerprint(numbered(statement)) == fingerprint(numbered(laid_out(statement)))


def test_a_statement_that_no_file_has_is_found(pulse_db: None) -> None:
    """Without the fence of a heartbeat."""
    unknown, found = Unknown(), list[Sent]()
    with recording(found.append):
        Job.objects.heartbeat([lease_of(make_job(Status.RUNNING))])
    [beat] = [one for one in found if one.function == "heartbeat"]
    unknown.keep(beat)
    assert unknown == {}
    unknown.keep(beat._replace(statement=beat.statement.replace(" AND job.attempts = held.attempt", "")))
    assert list(unknown.values()) == ["pulse_django.queue.heartbeat.heartbeat()"]


def numbered(statement: str) -> str:
    """Return it as PostgreSQL can parse it."""
    plain = re.sub(r"%\(\w+\)s|%s|(?<![:\w'\[]):[a-z]\w*", "NULL", statement)
    return plain.replace(", ...", "").replace("<day>", "1")
