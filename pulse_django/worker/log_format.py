"""How log lines look: as the project says, else plainly on standard error; as JSON if the command was told so."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from django.core.management.base import CommandParser

from .json_log import use_json


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


def add_log_format(parser: CommandParser) -> None:
    what = "json: what goes to standard output or standard error is one JSON object a line; default: as LOGGING says"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=what)


def configure(log_format: str = "text", stream: Any = None) -> None:
    """Show our lines, and as JSON all lines that go to standard output or standard error if that is asked for."""
    _show_ours(stream)
    if log_format == "json":
        use_json()


def _show_ours(stream: Any) -> None:
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
