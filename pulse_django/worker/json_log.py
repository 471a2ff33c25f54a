"""Log lines as JSON, one object a line, for what collects the logs of a host."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

# What every record has. All else on a record are facts that its line was logged with.
_OF_EVERY_RECORD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Json(logging.Formatter):
    """Time, level, logger and message, the facts of the line, and the traceback of its exception.

    What is not ASCII is escaped, so that no value can forge a line or reach a terminal.
    """

    def format(self, record: logging.LogRecord) -> str:
        facts = {key: value for key, value in record.__dict__.items() if key not in _OF_EVERY_RECORD}
        if record.exc_info and record.exc_info != (None, None, None):
            facts["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:
            facts["traceback"] = record.exc_text
        if record.stack_info:
            facts["stack"] = record.stack_info
        return self.shown(record.created, record.levelname, record.name, record.getMessage(), facts)

    def shown(self, created: float, level: str, name: str, message: str, facts: Mapping[str, Any]) -> str:
        time = datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")
        line = {**facts, "time": time, "level": level, "logger": name, "message": message}
        try:
            return _dumped(line)
        except Exception:  # keys that are no strings, NaN, circles, numbers of too many digits
            return json.dumps({_shown(key): _dumpable(value) for key, value in line.items()})


def use_json() -> None:
    """Have each log handler that writes to standard output or standard error write JSON."""
    for handler in _all_handlers():
        if isinstance(handler, _STREAMS) and getattr(handler, "stream", None) in (sys.stdout, sys.stderr):
            handler.setFormatter(Json())


def _all_handlers() -> Iterator[logging.Handler]:
    loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
    for logger in loggers:
        if isinstance(logger, logging.Logger):  # others hold the place of a logger that was not asked for
            yield from logger.handlers
    if logging.lastResort is not None:  # it writes the lines of loggers without a handler
        yield logging.lastResort


_STREAMS = (logging.StreamHandler, type(logging.lastResort))


def _dumped(line: Mapping[str, Any]) -> str:
    return json.dumps(line, default=_shown, allow_nan=False)


def _dumpable(value: Any) -> Any:
    """Return a value that JSON has a word for, or else what Python shows of it."""
    try:
        json.dumps(value, allow_nan=False)
    except Exception:
        return _shown(value)
    return value


def _shown(value: Any) -> str:
    """Return what Python shows of a value. Its repr() is the project's code, and may raise anything."""
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
