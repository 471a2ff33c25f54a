"""Show what each capability adds to the statements of the kernel: ``without/<capability>.diff``.

A job that uses nothing lives its life in a package without the capability. A capability without a file adds nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import pytest

from pulse_django import capabilities
from pulse_django.queue import capability
from tests.faults import all_faults
from tests.security import drive

from .layout import laid_out
from .lives import lives
from .sent import FOLDER, WRITES, Sent, is_comparable, recording

pytestmark = [
    pytest.mark.skipif(not is_comparable(), reason="the files have what another Django compiles"),
    pytest.mark.usefixtures("pulse_db", "installs_all_again"),
    pytest.mark.alters_statements,
]
PLAIN = ("plain", "shares")  # claimed from lanes without keys, and from lanes with them
FILES = FOLDER / "without"


@pytest.fixture
def installs_all_again() -> Iterator[None]:
    yield
    capabilities.install()


def sent_without(*left_out: str) -> list[str]:
    """Return the lines of all statements of the kernel in a package without these capabilities."""
    capabilities.install()
    capability.install(*(one for one in capability.installed() if one.name not in left_out))
    found: list[Sent] = []
    with recording(found.append):
        drive.drive(*(lives()[name] for name in PLAIN))
    of_kernel = [one for one in found if one.module.startswith("pulse_django.queue.")]
    texts = [f"-- {one.module}.{one.function}()\n{laid_out(one.statement)}" for one in of_kernel]
    return "\n\n".join(dict.fromkeys(texts)).splitlines()


def test_what_each_capability_adds_is_as_the_files_have_it() -> None:
    capabilities.install()
    names = [one.name for one in capability.installed()]
    whole = sent_without()
    added = {name: difflib.unified_diff(sent_without(name), whole, "without", "with", "", "", 2, "") for name in names}
    wanted = {FILES / f"{name}.diff": "".join(f"{line}\n" for line in lines) for name, lines in added.items()}
    wanted = {path: text for path, text in wanted.items() if text}
    there = set(FILES.glob("*.diff"))
    if WRITES:
        FILES.mkdir(exist_ok=True)
        for path in there - wanted.keys():
            path.unlink()
        for path, text in wanted.items():
            path.write_text(text)
        return
    with all_faults() as about:
        for path in sorted(there | wanted.keys()):
            with about(path.name):
                assert wanted.get(path, "") == (path.read_text() if path in there else ""), "`make sql` writes it anew"


# Tables that only the statements of one capability may name. Its columns are on the row of a job, and stay.
TABLES = {
    "workflows": ("batch", "dependency", "unresolved", "step", "event"),
    "pauses": ("pause",),
    "limits": ("limiter", "bucket"),
    "unique": ("key", "window"),
    "amendments": ("amendment",),
    "schedules": ("schedule", "tick", "declaration"),
}


def test_a_capability_that_is_not_installed_is_in_no_statement() -> None:
    with all_faults() as about:
        for name, tables in TABLES.items():
            text = "\n".join(sent_without(name))
            for table in tables:
                with about((name, table)):
                    assert f"pulse_django_{table} " not in text
