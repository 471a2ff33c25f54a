"""Writes the log lines of a batch at once: a system call for each costs as much as the line."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterable
from contextlib import nullcontext, suppress

from pulse_django.safe_logging import write_now

Line = tuple[logging.Logger, logging.LogRecord]


def write_all(lines: Iterable[Line]) -> None:
    """Write lines in their order. Handlers that write to the same stream do so once, at the end."""
    texts: dict[int, _Text] = {}
    routes: dict[logging.Logger, list[logging.Handler] | None] = {}
    for logger, record in lines:
        if logger not in routes:
            routes[logger] = _plain_handlers_of(logger)
        handlers = routes[logger]
        if handlers is None:
            write_now(logger, record)
        elif not logger.disabled:
            for handler in handlers:
                if record.levelno >= handler.level:
                    _handle(handler, record, texts)
    for text in texts.values():
        text.write()


class _Text:
    """What goes to one stream."""

    def __init__(self, handler: logging.StreamHandler[io.TextIOBase]) -> None:
        self._handler = handler
        self.parts: list[str] = []

    def write(self) -> None:
        with suppress(Exception), self._handler.lock or nullcontext():  # a stream that was closed loses it
            self._handler.stream.write("".join(self.parts))
            self._handler.flush()


def _handle(handler: logging.Handler, record: logging.LogRecord, texts: dict[int, _Text]) -> None:
    with suppress(BaseException):  # of a handler, a filter or a formatter of the project's
        if type(handler) is not logging.StreamHandler:
            handler.handle(record)
            return
        passed = handler.filter(record)
        if not passed:
            return
        record = passed if isinstance(passed, logging.LogRecord) else record  # since Python 3.12
        text = texts.setdefault(id(handler.stream), _Text(handler))
        try:
            text.parts.append(handler.format(record) + handler.terminator)
        except Exception:
            handler.handleError(record)


def _plain_handlers_of(logger: logging.Logger) -> list[logging.Handler] | None:
    """Return the handlers that get its records. None: it has none, or something of its own decides."""
    if type(logger) is not logging.Logger or logger.filters:
        return None
    found: list[logging.Handler] = []
    current: logging.Logger | None = logger
    while current is not None:
        found += current.handlers
        current = current.parent if current.propagate else None
    return found or None
