"""Starts the workers of the demo on one queue. When the block ends, no process of theirs is left."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from django.conf import settings

from testproject.harness.processes import StartedProcesses, StartedWorker, worker_command

HANDLERS = "testproject.demo.handlers"
PR_SET_PDEATHSIG = 1


class Stage(StartedProcesses):
    def __init__(self, folder: Path, queue: str, changes: dict[str, Any]) -> None:
        super().__init__(folder)
        self._queue, self._changes = queue, changes

    def worker(self, name: str) -> StartedWorker:
        """Start a worker with the settings of the demo. Linux stops it when the demo is killed."""
        modules = [*settings.PULSE.get("TASK_MODULES", []), HANDLERS]
        pulse = {**settings.PULSE, **self._changes, "TASK_MODULES": modules}
        environment = os.environ | {"PULSE": json.dumps(pulse)}
        command = worker_command("--queues", self._queue, "--name", name)
        demo = os.getpid()
        return self.start_worker(name, command, environment, cwd=settings.BASE_DIR, preexec_fn=lambda: _stop_with(demo))


@contextmanager
def set_up(queue: str, changes: dict[str, Any]) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory(prefix="pulse-demo-", ignore_cleanup_errors=True) as folder,
        Stage(Path(folder), queue, changes) as stage,
    ):
        yield stage


def _stop_with(parent: int) -> None:
    with suppress(AttributeError, OSError):  # only Linux has it
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        os._exit(1)
