"""A plain enqueue() calls no part that the task does not use."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import pulse_django
from pulse_django.run import notify
from tests.walk.traced import no_op

pytestmark = pytest.mark.usefixtures("pulse_db")

PACKAGE = f"{Path(pulse_django.__file__).parent}/"
OF_PARTS = {"encryption", "lane_keys", "limiting", "masks", "unique", "uniqueness", "batches"}
FUNCTIONS = 49  # lower it when there are fewer


def called_by_enqueue() -> dict[str, set[str]]:
    """Return the functions of the package that ``enqueue()`` calls, by their files."""
    found: dict[str, set[str]] = {}

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            file = frame.f_code.co_filename.removeprefix(PACKAGE)
            found.setdefault(file, set()).add(f"{frame.f_code.co_qualname}:{frame.f_code.co_firstlineno}")

    sys.setprofile(note)
    try:
        no_op.enqueue()
    finally:
        sys.setprofile(None)
    return found


def test_plain_job_asks_no_part() -> None:
    no_op.enqueue()  # what is found out once
    notify._notified_at.clear()  # not each call notifies
    found = called_by_enqueue()
    assert not OF_PARTS & {Path(file).stem for file in found}, found
    functions = [f"{file} {name}" for file, names in sorted(found.items()) for name in sorted(names)]
    assert len(functions) <= FUNCTIONS, "\n".join(functions)
