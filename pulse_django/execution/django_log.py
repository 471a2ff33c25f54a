"""Django's own log of its tasks: the records that its receivers make, without the results that they read.

Django connects receivers to its own signals, and they log that a task has started and ended. Making the results that
these signals carry takes longer than running a short job.
"""

from __future__ import annotations

import logging
import time
from enum import Enum, auto
from typing import Any
from weakref import ReferenceType

from django.dispatch import Signal

from pulse_django.safe_logging import SafeLogger, write_now

from .log_handlers import handlers_of, refuses_all
from .log_records import Place, make_line
from .run import Run
from .tasks_framework import LOGGER, SIGNALS_FILE, Task, TaskResultStatus

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
