"""Writes the log lines of a batch at once: a system call for each costs as much as the line."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial

from pulse_django.execution.log_handlers import filters_by_debug_alone, handlers_of, refuses_all
from pulse_django.execution.log_records import Line
from pulse_django.safe_logging import Written, write_now

from .json_log import Json
from .log_asides import Asides
from .log_format import Plain

Entry = tuple[logging.Logger, Written]
AsText = Callable[[Line], str]
THE_MESSAGE = "%(message)s"  # the format of a formatter that was given none


def write_all(entries: Iterable[Entry], asides: Asides | None = None) -> None:
    """Write lines in their order. Handlers that write to the same stream do so once, at the end.

    With ``asides``, handlers that do more than write to a stream are called there."""
    _Batch(asides).write(entries)


class _Batch:
    """The lines that are written at once, and what was found out for them about loggers and handlers."""

    def __init__(self, asides: Asides | None) -> None:
        self._asides = asides
        self._texts: dict[int, _Text] = {}
        self._handlers: dict[logging.Logger, list[logging.Handler] | None] = {}
        self._short_cuts: dict[tuple[logging.Logger, int], list[tuple[_Text, AsText]] | None] = {}

    def write(self, entries: Iterable[Entry]) -> None:
        for logger, line in entries:
            # An exception, of a value or of the project's code, costs only its own line.
            with suppress(BaseException):
                self._write_one(logger, line)
        for text in self._texts.values():
            text.write()

    def _write_one(self, logger: logging.Logger, line: Written) -> None:
        if not (isinstance(line, Line) and line.error is None and self._write_without_record(logger, line)):
            self._write_record(logger, line if isinstance(line, logging.LogRecord) else line.record())

    def _write_without_record(self, logger: logging.Logger, line: Line) -> bool:
        key = logger, line.level
        if key not in self._short_cuts:
            self._short_cuts[key] = self._short_cut(logger, line.level)
        if (ways := self._short_cuts[key]) is None:
            return False
        for text, shown in ways:
            text.parts.append(shown(line))
        return True

    def _short_cut(self, logger: logging.Logger, level: int) -> list[tuple[_Text, AsText]] | None:
        """Return where lines of this level go and how they look there. None: some handler needs a record."""
        handlers = self._handlers_of(logger)
        if handlers is None:
            return None
        ways = []
        for handler in handlers:
            if level < handler.level or refuses_all(handler) or logger.disabled:
                continue
            shown = _shown_by(handler, logger.name)
            if type(handler) is not logging.StreamHandler or not filters_by_debug_alone(handler) or shown is None:
                return None
            ways.append((self._text_of(handler), shown))
        return ways

    def _write_record(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        handlers = self._handlers_of(logger)
        if handlers is None:
            write_now(logger, record)
        elif not logger.disabled:
            for handler in handlers:
                if record.levelno >= handler.level:
                    self._handle(handler, record)

    def _handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        with suppress(BaseException):  # of a handler, a filter or a formatter of the project's
            if type(handler) is not logging.StreamHandler:
                if self._asides is None:
                    handler.handle(record)
                elif not refuses_all(handler):
                    self._asides.handle(handler, record)
                return
            passed = handler.filter(record)
            if not passed:
                return
            record = passed if isinstance(passed, logging.LogRecord) else record  # since Python 3.12
            text = self._text_of(handler)
            try:
                text.parts.append(handler.format(record) + handler.terminator)
            except Exception:
                handler.handleError(record)

    def _text_of(self, handler: logging.StreamHandler[io.TextIOBase]) -> _Text:
        return self._texts.setdefault(id(handler.stream), _Text(handler))

    def _handlers_of(self, logger: logging.Logger) -> list[logging.Handler] | None:
        """Return the handlers that get its records. None: it has none, or something of its own decides."""
        if logger not in self._handlers:
            decides = type(logger) is not logging.Logger or bool(logger.filters) or _is_patched()
            self._handlers[logger] = None if decides else (list(handlers_of(logger)) or None)
        return self._handlers[logger]


def _is_patched() -> bool:
    """Whether something stands in the way of every record, as error trackers do."""
    ways = (logging.Logger.handle, logging.Logger.callHandlers)
    return any(getattr(one, "__globals__", None) is not vars(logging) for one in ways)


class _Text:
    """What goes to one stream."""

    def __init__(self, handler: logging.StreamHandler[io.TextIOBase]) -> None:
        self._handler = handler
        self.parts: list[str] = []

    def write(self) -> None:
        with suppress(Exception), self._handler.lock or nullcontext():  # a stream that was closed loses it
            self._handler.stream.write("".join(self.parts))
            self._handler.flush()


def _shown_by(handler: logging.Handler, name: str) -> AsText | None:
    """Return how a handler shows the lines of a logger, if it is one of the ways that are known here."""
    formatter, end = handler.formatter, getattr(handler, "terminator", "\n")
    if type(formatter) is Plain:
        return partial(_shown_plainly, formatter, name, end)
    if type(formatter) is Json:
        return partial(_shown_as_json, formatter, name, end)
    is_bare = formatter is None or (type(formatter) is logging.Formatter and formatter._fmt == THE_MESSAGE)
    return partial(_shown_bare, end) if is_bare else None


def _shown_bare(end: str, line: Line) -> str:
    return line.message + end


def _shown_plainly(formatter: Plain, name: str, end: str, line: Line) -> str:
    return formatter.shown(line.created, logging.getLevelName(line.level), name, line.message) + end


def _shown_as_json(formatter: Json, name: str, end: str, line: Line) -> str:
    return formatter.shown(line.created, logging.getLevelName(line.level), name, line.message, line.facts) + end
