"""A reader that ends first, as ``head`` does, ends a command without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pulse_django.operations.arguments import BROKEN_PIPE
from tests.crash.processes import ROOT, database_url


@pytest.mark.parametrize("buffered", [True, False], ids=["what is left at the end", "a line"])
def test_a_reader_that_ends_first(pulse_db: None, buffered: bool) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, *([] if buffered else ["-u"]), "manage.py", "pulse_status"]
    try:
        environment = os.environ | {"DATABASE_URL": database_url()}
        done = subprocess.run(command, cwd=ROOT, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (BROKEN_PIPE, "")
