"""Django's own log of its tasks: the records that its receivers make, without the results that they read.

Django connects receivers to its own signals, and they log that a task has started and ended. Making the results that
these signals carry takes longer than running a short job.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum, auto
from typing import Any, NamedTuple
from weakref import ReferenceType

from django.conf import settings
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

from pulse_django.safe_logging import SafeLogger, write_now

from .registry import LOGGER, SIGNALS_FILE, Task, TaskResultStatus
from .run import Run

# Which handlers get the lines of a logger, and what their filters say as long as nothing but DEBUG decides.


def handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    """Yield the handlers of a logger and of those that it passes its lines on to."""
    found: logging.Logger | None = logger
    while found is not None:
        yield from found.handlers
        found = found.parent if found.propagate else None


def refuses_all(handler: logging.Handler) -> bool:
    """Whether Django's filters on DEBUG let no line through. Filters of the project's may say anything."""
    for one in handler.filters:
        if type(one) is RequireDebugTrue and not settings.DEBUG:
            return True
        if type(one) is RequireDebugFalse and settings.DEBUG:
            return True
    return False


def filters_by_debug_alone(handler: logging.Handler) -> bool:
    return all(type(one) in (RequireDebugTrue, RequireDebugFalse) for one in handler.filters)


# Log lines that are written for every run, at a fraction of what ``logging`` takes for one.
#
# Most of them go to a stream as they are. A ``logging.LogRecord`` is made only if something reads one.


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


class DeferredRecord:
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
) -> DeferredRecord | logging.LogRecord:
    """Return a line; if the project has a record factory of its own, the record that this makes here and now."""
    factory = logging.getLogRecordFactory()
    if factory is logging.LogRecord:
        line = DeferredRecord(place, level, text, values, facts)
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


_TEXT = "Task id=%s path=%s state=%s"
_STARTED = Place(LOGGER.name, SIGNALS_FILE, "log_task_started")
_FINISHED = Place(LOGGER.name, SIGNALS_FILE, "log_task_finished")


class Receivers(Enum):
    """Who receives a signal of Django's."""

    NONE = auto()
    DJANGOS_LOG = auto()  # and nothing else
    PROJECT = auto()


def receivers_of(signal: Signal) -> Receivers:
    """Say who receives one of Django's signals: a receiver of the project's gets what Django would send it."""
    receivers = signal.receivers
    if not receivers:
        return Receivers.NONE
    if len(receivers) > 1:
        return Receivers.PROJECT
    return Receivers.DJANGOS_LOG if _is_djangos(receivers[0]) else Receivers.PROJECT


def without_djangos_log(signal: Signal) -> Signal:
    """Return a signal that only receivers of the project's get."""
    part = Signal()
    part.receivers = [one for one in signal.receivers if not _is_djangos(one)]
    return part


def has_djangos_log(signal: Signal) -> bool:
    return any(_is_djangos(one) for one in signal.receivers)


def _is_djangos(entry: tuple[Any, ...]) -> bool:
    receiver = entry[1]
    receiver = receiver() if isinstance(receiver, ReferenceType) else receiver
    return getattr(receiver, "__name__", "").startswith("log_task_")


def is_on(level: int) -> bool:
    """Whether Django's log of tasks would write a line at this level: some handler would take it."""
    return LOGGER.isEnabledFor(level) and any(
        level >= handler.level and not refuses_all(handler) for handler in handlers_of(LOGGER)
    )


class _Lately:
    """Whether the log is on. In a worker, as it was at most ``AGE`` ago: to find out takes as long as to log a line."""

    AGE = 0.02  # seconds

    def __init__(self) -> None:
        self._until, self._is_on = float("-inf"), False

    def __call__(self, level: int) -> bool:
        if SafeLogger.write is write_now:
            return is_on(level)
        now = time.monotonic()
        if now > self._until:
            self._is_on, self._until = is_on(level), now + self.AGE
        return self._is_on


_is_info_on = _Lately()


def log_started(run: Run, task: Task) -> None:
    """Log what ``log_task_started`` logs."""
    _log(_STARTED, run, task, TaskResultStatus.RUNNING)


def log_succeeded(run: Run, task: Task) -> None:
    """Log what ``log_task_finished`` logs of a task that succeeded."""
    _log(_FINISHED, run, task, TaskResultStatus.SUCCESSFUL)


def log_failed(run: Run, task: Task, error: BaseException | None) -> None:
    """Log what ``log_task_finished`` logs of a task that failed, as a WARNING.

    Django's own is an ERROR, which its default settings mail to the admins: one mail for each dead letter. The ERROR
    of a dead letter is the line of ``pulse_django.jobs``, and the mail is that of the condition ``dead-letters``.
    """
    try:
        if is_on(logging.WARNING):
            values = (str(run.claim.job_id), task.module_path, TaskResultStatus.FAILED)
            SafeLogger.write(LOGGER, make_line(_FINISHED, logging.WARNING, _TEXT, values, error=error))
    except BaseException:  # of a record factory of the project's: it costs the line and not the run
        return


def _log(place: Place, run: Run, task: Task, status: TaskResultStatus) -> None:
    try:
        if _is_info_on(logging.INFO):
            values = (str(run.claim.job_id), task.module_path, status)
            SafeLogger.write(LOGGER, make_line(place, logging.INFO, _TEXT, values))
    except BaseException:  # of a record factory of the project's: it costs the line and not the run
        return
