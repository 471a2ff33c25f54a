"""Log lines that are written for every run, at a fraction of what ``logging`` takes for one.

Most of them go to a stream as they are. A ``logging.LogRecord`` is made only if something reads one.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

Facts = Mapping[str, Any]


class _Here(threading.local):
    """What is known of this thread of this process."""

    def __init__(self) -> None:
        self.known: dict[Place, dict[str, Any]] = {}


_here = _Here()
os.register_at_fork(after_in_child=lambda: _here.known.clear())


class Place(NamedTuple):
    """The code that a record names as its origin."""

    logger: str
    file: str
    function: str


class Line:
    """What was logged, where and when. It knows the thread that logged it, and another may write it."""

    __slots__ = ("_facts", "_known", "created", "error", "level", "text", "values")

    def __init__(
        self, place: Place, level: int, text: str, values: tuple[Any, ...], facts: Callable[[], Facts] = dict
    ) -> None:
        """``facts`` returns the further attributes of a record."""
        self.level, self.text, self.values, self._facts = level, text, values, facts
        self.created = time.time()
        self.error: BaseException | None = None
        self._known = _known(place)

    @property
    def message(self) -> str:
        return self.text % self.values

    @property
    def facts(self) -> Facts:
        return self._facts()

    def record(self) -> logging.LogRecord:
        """Make the record that logger.log() would have made. What is the same for every line is copied: the file, the
        line, the thread and the process."""
        known, created = self._known, self.created
        record = logging.LogRecord.__new__(logging.LogRecord)
        record.__dict__ |= known
        record.__dict__ |= self._facts()
        record.msg, record.args = self.text, self.values
        record.levelno, record.levelname = self.level, logging.getLevelName(self.level)
        record.created, record.msecs = created, (created - int(created)) * 1000
        record.relativeCreated = known["relativeCreated"] + (created - known["created"]) * 1000
        if (error := self.error) is not None:
            record.exc_info = (type(error), error, error.__traceback__)
        return record


def make_line(
    place: Place,
    level: int,
    text: str,
    values: tuple[Any, ...],
    facts: Callable[[], Facts] = dict,
    error: BaseException | None = None,
) -> Line | logging.LogRecord:
    """Return a line; if the project has a record factory of its own, the record that this makes here and now."""
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        line = Line(place, level, text, values, facts)
        line.error = error
        return line
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = factory(place.logger, level, place.file, 0, text, values, exc_info, place.function)
    record.__dict__ |= facts()
    return record


def _known(place: Place) -> dict[str, Any]:
    """Return what records from this place have in common, in this thread of this process."""
    known = _here.known
    if place not in known:
        known[place] = vars(
            logging.LogRecord(place.logger, logging.INFO, place.file, 0, "", None, None, place.function)
        )
    return known[place]
