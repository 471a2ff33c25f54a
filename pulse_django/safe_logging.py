"""Loggers that cannot raise: a project's log handlers, filters and formatters do no harm to the code that logs.

A handler of the log that raises, or whose stream was closed, costs its lines. In a worker it also cannot block: records
go to a thread that writes them (``worker.logs``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol


class RecordMaker(Protocol):
    """What a record can be made of (``execution.django_log``)."""

    def record(self) -> logging.LogRecord: ...


Written = logging.LogRecord | RecordMaker
Write = Callable[[logging.Logger, Written], None]

_CALLER = 3  # frames: of the method that makes the record, of the method that was called, of its caller


def write_now(logger: logging.Logger, line: Written) -> None:
    """Pass a line to the log handlers in this thread; drop it if one of them raises."""
    with suppress(BaseException):  # there is no place left to report it
        logger.handle(line if isinstance(line, logging.LogRecord) else line.record())


class SafeLogger:
    """What this package uses of a ``logging.Logger``, without its exceptions."""

    write: Write = staticmethod(write_now)  # replaced in the processes of a worker

    def __init__(self, name: str) -> None:
        self.logger = logging.getLogger(name)

    def debug(self, text: str, *args: Any, **options: Any) -> None:
        self._log(logging.DEBUG, text, args, **options)

    def info(self, text: str, *args: Any, **options: Any) -> None:
        self._log(logging.INFO, text, args, **options)

    def warning(self, text: str, *args: Any, **options: Any) -> None:
        self._log(logging.WARNING, text, args, **options)

    def error(self, text: str, *args: Any, **options: Any) -> None:
        self._log(logging.ERROR, text, args, **options)

    def exception(self, text: str, *args: Any) -> None:
        self._log(logging.ERROR, text, args, exc_info=True)

    def _log(
        self,
        level: int,
        text: str,
        args: tuple[Any, ...],
        *,
        exc_info: bool | BaseException | None = None,
        extra: Mapping[str, object] | None = None,
    ) -> None:
        if not self.logger.isEnabledFor(level):
            return
        try:
            file, line, function, _ = self.logger.findCaller(False, _CALLER)
            error = _exc_info(exc_info)
            record = self.logger.makeRecord(
                self.logger.name, level, file, line, text, args, error, function, extra, None
            )
        except BaseException:  # a record factory of the project's
            return
        SafeLogger.write(self.logger, record)


def _exc_info(given: bool | BaseException | None) -> Any:
    if isinstance(given, BaseException):
        return type(given), given, given.__traceback__
    return sys.exc_info() if given else None
