"""Write the same log lines as Django's task signals, without building the results that the signals need.

Django's own receivers of its task signals log the start and the end of a task. Building the results for these signals
takes longer than running a short job.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import ReferenceType

from django.conf import settings
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

from pulse_django.safe_logging import AT_ONCE, exc_info_of, process_log

from .registry import LOGGER, SIGNALS_FILE, Task, TaskResultStatus, log_task_started
from .run import Run

# The handlers of a logger, and whether their filters depend only on DEBUG.


def handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of a logger and of the loggers that it propagates to."""
    found: logging.Logger | None = logger
    while found is not None:
        yield from found.handlers
        found = found.parent if found.propagate else None


def refuses_all(handler: logging.Handler) -> bool:
    """Return whether Django's filters on DEBUG refuse every line. The result of other filters is not known."""
    for one in handler.filters:
        if type(one) is RequireDebugTrue and not settings.DEBUG:
            return True
        if type(one) is RequireDebugFalse and settings.DEBUG:
            return True
    return False


def filters_by_debug_alone(handler: logging.Handler) -> bool:
    return all(type(one) in (RequireDebugTrue, RequireDebugFalse) for one in handler.filters)


# Log lines for every run, in a fraction of the time that ``logging`` takes.
#
# Most of them are written to a stream directly. A ``logging.LogRecord`` is made only if something needs it.


Facts = Mapping[str, Any]


class _Here(threading.local):
    """Cached values of this thread and process."""

    def __init__(self) -> None:
        self.known: dict[Place, dict[str, Any]] = {}


_here = _Here()
if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=lambda: _here.known.clear())


class Place(NamedTuple):
    """The source location of a log record."""

    logger: str
    file: str
    function: str


class DeferredRecord:
    """A logged message with its place, time and thread. Another thread may write it."""

    __slots__ = ("_known", "created", "error", "facts", "level", "name", "text", "values")

    exc_info = exc_text = stack_info = None  # as in a record without an error; with an error, a LogRecord is made

    def __init__(
        self,
        place: Place,
        level: int,
        text: str,
        values: tuple[Any, ...],
        facts: Callable[[], Facts] = dict,
        error: BaseException | None = None,
    ) -> None:
        """``facts`` returns the extra attributes of the record."""
        self.name, self.level, self.text, self.values, self.facts = place.logger, level, text, values, facts
        self.created, self.error = time.time(), error
        self._known = _known(place)

    @property
    def levelname(self) -> str:
        return logging.getLevelName(self.level)

    def getMessage(self) -> str:  # noqa: N802 - as in LogRecord
        return self.text % self.values

    def makers(self) -> Iterator[Callable[[], logging.LogRecord]]:
        yield self.record

    def record(self) -> logging.LogRecord:
        """Make the record that logger.log() would have made. Attributes that all lines share are copied: the file, the
        line, the thread and the process."""
        known, created = self._known, self.created
        record = logging.LogRecord.__new__(logging.LogRecord)
        record.__dict__ |= known
        record.__dict__ |= self.facts()
        record.msg, record.args = self.text, self.values
        record.levelno, record.levelname = self.level, self.levelname
        record.created, record.msecs = created, (created - int(created)) * 1000
        record.relativeCreated = known["relativeCreated"] + (created - known["created"]) * 1000
        record.exc_info = exc_info_of(self.error)
        return record


class DeferredRecords:
    """Several lines that were logged together, in order. Each is about one row."""

    def __init__(
        self,
        place: Place,
        level: int,
        text: str,
        rows: Sequence[Any],
        values: Callable[[Any], tuple[Any, ...]],
        facts: Callable[[Any], Facts],
    ) -> None:
        """``values`` and ``facts`` return the arguments and the extra attributes for a row."""
        self.place, self.level, self.text, self.rows, self.values, self.facts = place, level, text, rows, values, facts
        self.created, self._known = time.time(), _known(place)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[DeferredRecord]:
        for row in self.rows:
            line = DeferredRecord(self.place, self.level, self.text, self.values(row), partial(self.facts, row))
            line.created, line._known = self.created, self._known
            yield line

    def makers(self) -> Iterator[Callable[[], logging.LogRecord]]:
        return (line.record for line in self)

    def messages(self) -> Iterator[str]:
        return (self.text % self.values(row) for row in self.rows)


def make_line(
    place: Place,
    level: int,
    text: str,
    values: tuple[Any, ...],
    facts: Callable[[], Facts] = dict,
    error: BaseException | None = None,
) -> DeferredRecord | logging.LogRecord:
    """Return a deferred line, or a record if the project has its own record factory."""
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        return DeferredRecord(place, level, text, values, facts, error)
    record = factory(place.logger, level, place.file, 0, text, values, exc_info_of(error), place.function)
    record.__dict__ |= facts()
    return record


def _known(place: Place) -> dict[str, Any]:
    """Return the attributes that records of this place, thread and process share."""
    known = _here.known
    if place not in known:
        known[place] = vars(
            logging.LogRecord(place.logger, logging.INFO, place.file, 0, "", None, None, place.function)
        )
    return known[place]


_TEXT = "Task id=%s path=%s state=%s"
_STARTED = Place(LOGGER.name, SIGNALS_FILE, "log_task_started")
_FINISHED = Place(LOGGER.name, SIGNALS_FILE, "log_task_finished")


def is_sent(signal: Signal) -> bool:
    """Return whether the project has a receiver of this Django signal."""
    return not all(map(_is_djangos, signal.receivers))


def is_logged(signal: Signal) -> bool:
    """Return whether Django's own log receiver is connected."""
    return any(map(_is_djangos, signal.receivers))


def is_heard(signal: Signal, level: int = logging.INFO) -> bool:
    """Return whether the project has a receiver, or Django's log would write a line at this level."""
    writes = _is_info_on if level == logging.INFO else partial(LOGGER.isEnabledFor, level)
    return is_sent(signal) or (writes() and is_logged(signal))


def without_djangos_log(signal: Signal) -> Signal:
    """Return the signal with the project's receivers only."""
    part = Signal()
    part.receivers = [one for one in signal.receivers if not _is_djangos(one)]
    return part


def _is_djangos(entry: tuple[Any, ...]) -> bool:
    receiver = entry[1]
    receiver = receiver() if isinstance(receiver, ReferenceType) else receiver
    is_of_signals = getattr(receiver, "__module__", None) == log_task_started.__module__
    return is_of_signals and getattr(receiver, "__name__", "").startswith("log_task_")


def is_on(level: int) -> bool:
    """Return whether Django's log of tasks would write a line at this level, because a handler accepts it."""
    try:
        return LOGGER.isEnabledFor(level) and any(
            level >= handler.level and not refuses_all(handler) for handler in handlers_of(LOGGER)
        )
    except Exception:  # a handler of the project may raise, for example if its level is a text
        return True


AGE = 0.02  # seconds for which a worker caches whether the log is on: the check takes as long as a line
_lately = float("-inf"), False  # valid until, and the value


def _is_info_on() -> bool:
    global _lately
    now = time.monotonic()
    if now > _lately[0] or process_log.writer is AT_ONCE:
        _lately = now + AGE, is_on(logging.INFO)
    return _lately[1]


def log_task(run: Run, task: Task, status: TaskResultStatus, error: BaseException | None = None) -> None:
    """Log the start or the end of a task as Django's receivers do, but a failure as a WARNING.

    Django logs an ERROR, which its default settings mail to the admins: one mail for each dead letter. For a dead
    letter, ``pulse_django.jobs`` logs the ERROR with the traceback, and the condition ``dead-letters`` sends the mail.
    """
    has_failed = status is TaskResultStatus.FAILED
    try:
        if is_on(logging.WARNING) if has_failed else _is_info_on():
            place = _STARTED if status is TaskResultStatus.RUNNING else _FINISHED
            level = logging.WARNING if has_failed else logging.INFO
            values = (str(run.claim.job_id), task.module_path, status)
            shown = error if process_log.writer is AT_ONCE else None
            process_log.writer.put(LOGGER, make_line(place, level, _TEXT, values, error=shown))
    except BaseException:  # a record factory of the project may raise: lose the line, not the run
        return
