"""Detect code changes, for development, and wait while the code cannot be loaded."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from django.utils.autoreload import iter_all_python_module_files

logger = logging.getLogger("pulse_django.worker")

INTERVAL = 1.0  # seconds between two checks


class Changes:
    def __init__(self, since: float | None = None) -> None:
        """``since``: when loading began, by the monotonic clock. A file that was saved meanwhile counts as changed."""
        self._looked_at = time.monotonic()
        self._seen = self._look()
        now = time.time()  # ignore files of the future, whose clock is another one: restarts would not end
        began = now if since is None else now - (time.monotonic() - since)
        self.found: Path | None = next((path for path, at in self._seen.items() if began < at <= now), None)

    def are_there(self) -> bool:
        """Return whether the file of a module that was loaded at the start has changed or was deleted."""
        now = time.monotonic()
        if self.found is None and now - self._looked_at >= INTERVAL:
            self._looked_at = now
            seen = self._look()
            # A module that was loaded later is not a change.
            self.found = next((path for path, at in self._seen.items() if seen.get(path) != at), None)
        return self.found is not None

    @staticmethod
    def _look() -> dict[Path, float]:
        return {path: path.stat().st_mtime for path in iter_all_python_module_files() if path.exists()}


def start_again() -> NoReturn:
    """Restart as a new worker when the code loads. Until then, print the error and wait for the next change."""
    _forget_signals()
    since = time.monotonic()
    while (problem := _problem_of(sys.orig_argv)) is not None:
        changes = Changes(since)
        sys.stderr.write(problem)
        logger.error("The code does not load; waiting for the next change")
        try:
            while not changes.are_there():
                time.sleep(INTERVAL / 4)
        except KeyboardInterrupt:
            sys.exit(130)
        since = time.monotonic()
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the same command


def _problem_of(argv: Sequence[str]) -> str | None:
    """Load the project and its tasks in another process, as a worker does. Return its error output if it fails."""
    command = [sys.executable, *argv[1:], "--only-load"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - the same command
    return done.stderr if done.returncode else None


def _forget_signals() -> None:
    """Restore the signal handlers: the keeper has stopped, and Ctrl-C must end the wait."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
