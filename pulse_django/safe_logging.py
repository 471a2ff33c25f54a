"""Loggers that cannot raise: errors in the project's log handlers, filters and formatters do not affect the caller.

If a log handler raises, or its stream is closed, its lines are lost. In a worker, a log handler cannot block either:
a thread writes the records (``worker.logs``).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Protocol


class RecordMaker(Protocol):
    """An object from which one or more records can be made (``run.django_log``)."""

    def makers(self) -> Iterator[Callable[[], logging.LogRecord]]: ...


Written = logging.LogRecord | RecordMaker


def makers_of(line: Written) -> Iterator[Callable[[], logging.LogRecord]]:
    """Yield a function for each record of a line."""
    if isinstance(line, logging.LogRecord):
        record = line
        yield lambda: record
    else:
        yield from line.makers()


_CALLER = 3  # frames: of the method that makes the record, of the method that was called, of its caller


class LineWriter(Protocol):
    """Receives the log lines of a process."""

    def put(self, logger: logging.Logger, line: Written) -> None: ...


class _AtOnce:
    def put(self, logger: logging.Logger, line: Written) -> None:
        """Pass a line to the log handlers in this thread; drop it if one of them raises."""
        for make in makers_of(line):
            with suppress(BaseException):  # there is no place left to report it
                logger.handle(make())


AT_ONCE = _AtOnce()


class ProcessLog:
    """The log of this process. In a worker, a thread writes it (``worker.logs``)."""

    writer: LineWriter = AT_ONCE


process_log = ProcessLog()


class SafeLogger:
    """The part of ``logging.Logger`` that this package uses, without exceptions."""

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
            raised: Any = exc_info_of(exc_info) if isinstance(exc_info, BaseException) else exc_info and sys.exc_info()
            record = self.logger.makeRecord(
                self.logger.name, level, file, line, text, args, raised, function, extra, None
            )
        except BaseException:  # raised by a record factory of the project
            return
        process_log.writer.put(self.logger, record)


def exc_info_of(error: BaseException | None) -> Any:
    """Return an exception in the format of log records."""
    return None if error is None else (type(error), error, error.__traceback__)
