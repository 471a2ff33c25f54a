"""Django's own log of its tasks: the records that its receivers make, without the results that they read.

Django connects receivers to its own signals, and they log that a task has started and ended. Making the results that
these signals carry takes longer than running a short job.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from enum import Enum, auto
from weakref import ReferenceType

from django.conf import settings
from django.dispatch import Signal
from django.utils.log import RequireDebugFalse, RequireDebugTrue

from pulse_django.safe_logging import SafeLogger

from .databases import result_id
from .log_records import Place, make_record
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
    receiver = receivers[0][1]
    receiver = receiver() if isinstance(receiver, ReferenceType) else receiver
    is_djangos = getattr(receiver, "__name__", "").startswith("log_task_")
    return Receivers.DJANGOS_LOG if is_djangos else Receivers.PROJECT


def is_on(level: int) -> bool:
    """Whether Django's log of tasks would write a line at this level: some handler would take it."""
    return LOGGER.isEnabledFor(level) and any(_takes(handler, level) for handler in _handlers_of(LOGGER))


def log_started(run: Run, task: Task) -> None:
    """Log what ``log_task_started`` logs."""
    _log(_STARTED, run, task, TaskResultStatus.RUNNING)


def log_succeeded(run: Run, task: Task) -> None:
    """Log what ``log_task_finished`` logs of a task that succeeded."""
    _log(_FINISHED, run, task, TaskResultStatus.SUCCESSFUL)


def _log(place: Place, run: Run, task: Task, status: TaskResultStatus) -> None:
    try:
        if is_on(logging.INFO):
            values = (result_id(run.claim.job_id, run.alias), task.module_path, status)
            SafeLogger.write(LOGGER, make_record(place, logging.INFO, _TEXT, values, {}))
    except BaseException:  # of a record factory of the project's: it costs the line and not the run
        return


def _handlers_of(logger: logging.Logger) -> Iterator[logging.Handler]:
    found: logging.Logger | None = logger
    while found is not None:
        yield from found.handlers
        found = found.parent if found.propagate else None


def _takes(handler: logging.Handler, level: int) -> bool:
    """Whether a handler may write a line at this level. Filters of the project's may say anything."""
    if level < handler.level:
        return False
    for one in handler.filters:
        if type(one) is RequireDebugTrue and not settings.DEBUG:
            return False
        if type(one) is RequireDebugFalse and settings.DEBUG:
            return False
    return True
