"""Write down each call of a function of the package, and each return from one.

A worker that imports this module, by ``PULSE["TASK_MODULES"]``, does so in all its processes and threads: it imports
what declares tasks before it forks.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from types import FrameType
from typing import Any

import pulse_django
from pulse_django import Limit, task

FOLDER = "PULSE_WALK_FOLDER"  # in the environment
PACKAGE = f"{Path(pulse_django.__file__).parent}/"


class Recorder:
    """Appends a line for each call and return: thread, "c" or "r", file, function."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._pid, self._file = folder, 0, -1

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        if event not in ("call", "return") or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        if self._pid != os.getpid():  # the process was forked
            self._pid = os.getpid()
            self._file = os.open(self._folder / f"{self._pid}.calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        where = frame.f_code.co_filename.removeprefix(PACKAGE)
        line = f"{threading.get_ident()}\t{event[0]}\t{where}\t{frame.f_code.co_qualname}\n"
        os.write(self._file, line.encode())

    def __enter__(self) -> None:
        sys.setprofile(self)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)


if folder := os.environ.get(FOLDER):
    recorder = Recorder(Path(folder))
    threading.setprofile(recorder)
    sys.setprofile(recorder)


@task(name="tests.walk.no_op")
def no_op() -> None:
    pass


@task(name="tests.walk.limited", limit_key="customer", limit=Limit(max_running_per_key=1))
def limited(customer: int) -> None:
    pass
