"""Starts the workers of the demo on one queue. When the block ends, no process of theirs is left."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from testproject.harness.processes import StartedProcesses, StartedWorker


class Stage(StartedProcesses):
    def __init__(self, folder: Path, queue: str, changes: dict[str, Any]) -> None:
        super().__init__(folder)
        self._queue, self._changes = queue, changes

    def worker(self, name: str) -> StartedWorker:
        """Start a worker. Its module finds what this process finds; the settings are named in the environment."""
        module = [sys.executable, "-m", "testproject.demo.worker", json.dumps(self._changes)]
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        environment = os.environ | {"PYTHONPATH": path}
        return self.start_worker(name, [*module, "--queues", self._queue, "--name", name], environment)


@contextmanager
def set_up(queue: str, changes: dict[str, Any]) -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory(prefix="pulse-demo-", ignore_cleanup_errors=True) as folder,
        Stage(Path(folder), queue, changes) as stage,
    ):
        yield stage
