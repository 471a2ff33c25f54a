"""How our lines look where a project does not say: time, level, logger and message, on standard error."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any


class Plain(logging.Formatter):
    """Time, level, logger and message. It asks the calendar once a second and not for each line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._second, self._shown = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        text = self.shown(record.created, record.levelname, record.name, record.getMessage())
        if record.exc_info:  # indented, for an exception may say what a line of ours would
            lines = self.formatException(record.exc_info).splitlines()
            text = "\n    ".join([text, *(_inert(line) for line in lines)])
        return text

    def shown(self, created: float, level: str, name: str, message: str) -> str:
        """Return a line without an exception."""
        second = int(created)
        if second != self._second:
            self._second, self._shown = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._shown},{int((created - second) * 1000):03d} {level} {name}: {_inert(message)}"


def configure(stream: Any = None) -> None:
    """Show our lines on standard error, unless the project has made up its mind about them."""
    ours, root = logging.getLogger("pulse_django"), logging.getLogger()
    if ours.handlers or root.handlers:
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(Plain())
    ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    ours.propagate = False


def _inert(text: str) -> str:
    """Escape what a terminal would obey; others than we log under our names too."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)
