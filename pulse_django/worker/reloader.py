"""Notices that the code has changed, for development, and waits while it does not load."""

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

INTERVAL = 1.0  # seconds between two looks


class Changes:
    def __init__(self) -> None:
        self.found: Path | None = None
        self._looked_at = time.monotonic()
        self._seen = self._look()

    def are_there(self) -> bool:
        """Say whether a file of a module that was loaded when this began is another, or gone."""
        now = time.monotonic()
        if self.found is None and now - self._looked_at >= INTERVAL:
            self._looked_at = now
            seen = self._look()
            # A module that was loaded since is no change.
            self.found = next((path for path, at in self._seen.items() if seen.get(path) != at), None)
        return self.found is not None

    @staticmethod
    def _look() -> dict[Path, float]:
        return {path: path.stat().st_mtime for path in iter_all_python_module_files() if path.exists()}


def start_again() -> NoReturn:
    """Become a new worker once the code loads. Until then, say what is wrong and wait for the next change."""
    _forget_signals()
    while (problem := _problem_of(sys.orig_argv)) is not None:
        changes = Changes()  # made first: what is saved while the text is printed counts
        sys.stderr.write(problem)
        logger.error("The code does not load; waiting for the next change")
        try:
            while not changes.are_there():
                time.sleep(INTERVAL / 4)
        except KeyboardInterrupt:
            sys.exit(130)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - ourselves once more


def _problem_of(argv: Sequence[str]) -> str | None:
    """Load the project and its tasks in another process, as a worker would. Return what it said if it failed."""
    command = [sys.executable, *argv[1:], "--only-load"]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)  # noqa: S603 - ourselves
    return done.stderr if done.returncode else None


def _forget_signals() -> None:
    """Undo what the keeper did to signals: it has stopped, and Ctrl-C must end the wait."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
