"""Write the log of a worker process in its own thread, so that a hanging log handler delays nothing else.

The thread writes to streams itself. Other log handlers have a thread each (``HandlerThread``), and get their lines from
it.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext, suppress
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from django.conf import settings
from django.core.management.base import CommandParser

from pulse_django.run.django_log import (
    DeferredRecord,
    DeferredRecords,
    filters_by_debug_alone,
    handlers_of,
    refuses_all,
)
from pulse_django.run.registry import LOGGER as DJANGOS_TASKS
from pulse_django.safe_logging import AT_ONCE, Written, makers_of, process_log

from .needed_threads import NeededThreads, start_thread

# Writes the log lines of a batch at once: a system call for each line takes as long as the line itself.


Entry = tuple[logging.Logger, Written]
AsText = Callable[[DeferredRecord], str]
Handle = Callable[[logging.Handler, logging.LogRecord], object]
THE_MESSAGE = "%(message)s"  # the default format of a formatter


def write_all(entries: Iterable[Entry], handle: Handle = lambda handler, record: handler.handle(record)) -> None:
    """Write lines in order. Each stream is written once, at the end.

    ``handle`` calls handlers that do more than write to a stream.
    """
    _Batch(handle).write(entries)


class _Batch:
    """A batch of lines, with cached facts about loggers and handlers."""

    def __init__(self, handle: Handle) -> None:
        self._handle_elsewhere = handle
        self._texts: dict[int, tuple[logging.StreamHandler[Any], list[str]]] = {}  # by stream
        self._handlers: dict[logging.Logger, list[logging.Handler] | None] = {}
        self._short_cuts: dict[tuple[logging.Logger, int], list[tuple[list[str], AsText, str]] | None] = {}

    def write(self, entries: Iterable[Entry]) -> None:
        for logger, line in entries:
            if isinstance(line, DeferredRecords):
                self._write_many(logger, line)
            else:
                self._write_one(logger, line)
        for handler, text in self._texts.values():
            with suppress(Exception), handler.lock or nullcontext():  # a closed stream loses them
                handler.stream.write("".join(text))
                handler.flush()

    def _write_many(self, logger: logging.Logger, lines: DeferredRecords) -> None:
        with suppress(BaseException):
            ways = self._ways(logger, lines.level) or []
            if len(ways) == 1 and isinstance(plain := getattr(ways[0][1], "__self__", None), Plain):
                [(text, _, end)] = ways
                text.append(plain.format_all(lines, end))
                return
        for line in lines:
            self._write_one(logger, line)

    def _write_one(self, logger: logging.Logger, line: Written) -> None:
        # An exception, of a value or of the project's code, loses only its own line.
        with suppress(BaseException):
            if not (isinstance(line, DeferredRecord) and line.error is None and self._write_text(logger, line)):
                for make in makers_of(line):
                    self._write_record(logger, make())

    def _write_text(self, logger: logging.Logger, line: DeferredRecord) -> bool:
        """Write a line without a record, if no handler needs one. Return whether it was written."""
        if (ways := self._ways(logger, line.level)) is None:
            return False
        for text, shown, end in ways:
            text.append(shown(line) + end)
        return True

    def _write_record(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        if (handlers := self._handlers_of(logger)) is None:
            AT_ONCE.put(logger, record)
            return
        for handler in handlers:
            if record.levelno >= handler.level and not logger.disabled:
                self._handle(handler, record)

    def _ways(self, logger: logging.Logger, level: int) -> list[tuple[list[str], AsText, str]] | None:
        key = logger, level
        if key not in self._short_cuts:
            self._short_cuts[key] = self._short_cut(logger, level)
        return self._short_cuts[key]

    def _short_cut(self, logger: logging.Logger, level: int) -> list[tuple[list[str], AsText, str]] | None:
        """Return the streams and formats for lines of this level. None: a handler needs a record."""
        handlers = self._handlers_of(logger)
        if handlers is None:
            return None
        ways = []
        for handler in handlers:
            if level < handler.level or refuses_all(handler) or logger.disabled:
                continue
            shown = _shown_by(handler)
            if type(handler) is not logging.StreamHandler or not filters_by_debug_alone(handler) or shown is None:
                return None
            ways.append((self._text_of(handler), shown, handler.terminator))
        return ways

    def _handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        with suppress(BaseException):  # raised by a handler, a filter or a formatter of the project
            if type(handler) is not logging.StreamHandler:
                if not refuses_all(handler):
                    self._handle_elsewhere(handler, record)
            elif passed := handler.filter(record):
                record = passed if isinstance(passed, logging.LogRecord) else record  # since Python 3.12
                text = self._text_of(handler)
                try:
                    text.append(handler.format(record) + handler.terminator)
                except Exception:
                    handler.handleError(record)

    def _text_of(self, handler: logging.StreamHandler[Any]) -> list[str]:
        return self._texts.setdefault(id(handler.stream), (handler, []))[1]

    def _handlers_of(self, logger: logging.Logger) -> list[logging.Handler] | None:
        """Return the handlers that get its records. None: it has none, or custom code decides."""
        if logger not in self._handlers:
            decides = type(logger) is not logging.Logger or bool(logger.filters) or _is_patched()
            self._handlers[logger] = None if decides else (list(handlers_of(logger)) or None)
        return self._handlers[logger]


def _is_patched() -> bool:
    """Return whether the handling of records is patched, as by error trackers."""
    ways = (logging.Logger.handle, logging.Logger.callHandlers)
    return any(getattr(one, "__globals__", None) is not vars(logging) for one in ways)


def _shown_by(handler: logging.Handler) -> AsText | None:
    """Return the format of a handler, if it is a known one."""
    formatter = handler.formatter
    if isinstance(formatter, Plain | Json) and type(formatter) in (Plain, Json):
        return formatter.format
    is_bare = formatter is None or (type(formatter) is logging.Formatter and formatter._fmt == THE_MESSAGE)
    return DeferredRecord.getMessage if is_bare else None


# Log handlers that may block, each in its own thread: a handler that hangs loses only its own lines.
#
# A mail server or a collector that does not respond blocks its handler for half a minute. ``LogWriter`` itself writes
# to standard output and standard error.


# Records that may wait for one handler. With fewer, a short pause of a collector loses lines. With more, tracebacks
# that wait for a mail server fill the memory.
MOST_WAITING_OF_HANDLER = 2_000
# Seconds without a written line after which a handler with a full queue counts as hanging. Then its lines are dropped
# and counted.
PATIENCE_WITH_HANDLER = 0.5
BETWEEN_NOTICES = 10.0  # seconds

DROPPED_BY_HANDLER = "Dropped %d log lines of the log handler %s: it is too slow or hangs"


class HandlerThread:
    """A handler with the records that wait for it."""

    def __init__(self, handler: logging.Handler) -> None:
        self.dropped = 0
        self._handler = handler
        self._noticed_at = float("-inf")
        self._waiting: SimpleQueue[logging.LogRecord] = SimpleQueue()
        self._written = self._put = 0
        self._moved_at = time.monotonic()
        start_thread(f"log-{type(handler).__name__}", self._run)

    @property
    def waiting(self) -> int:
        return self._put - self._written

    def put(self, record: logging.LogRecord) -> None:
        """Add a record. Wait for space while the handler writes."""
        while self.waiting >= MOST_WAITING_OF_HANDLER:
            if time.monotonic() - self._moved_at > PATIENCE_WITH_HANDLER:
                self.dropped += record.msg != DROPPED_BY_HANDLER  # a notice of dropped lines does not count
                return
            time.sleep(PAUSE)
        if not self.waiting:
            self._moved_at = time.monotonic()
        self._put += 1
        self._waiting.put(record)

    def notices(self, *, at_end: bool = False) -> Iterator[Entry]:
        """Yield notices of dropped lines from time to time. At the end, waiting records are dropped, too."""
        now = time.monotonic()
        dropped = self.dropped + (self.waiting if at_end else 0)
        if dropped and (at_end or now - self._noticed_at >= BETWEEN_NOTICES):
            self._noticed_at, self.dropped = now, 0
            yield _notice(DROPPED_BY_HANDLER, dropped, type(self._handler).__name__)

    def _run(self) -> None:
        while True:
            record = self._waiting.get()
            with suppress(BaseException):  # raised by a handler, a filter or a formatter of the project
                self._handler.handle(record)
            self._written += 1
            self._moved_at = time.monotonic()


# Lines that may wait to be written. Above that, a thread that logs waits while lines are being written. If none was
# written for PATIENCE seconds, a log handler hangs. Then new lines are dropped and counted.
MOST_WAITING = 10_000
PATIENCE, PAUSE = 0.5, 0.001
MOST_AT_ONCE = 1_000
TICK = 0.5
# After a batch of so many lines, wait for a moment before the next one. During this time, new lines do not wake this
# thread.
FLOOD, LINGER = 20, 0.02

DROPPED = "Dropped %d log lines: a log handler is too slow or hangs"

_ours = logging.getLogger("pulse_django.worker")


class LogWriter:
    def __init__(self) -> None:
        self.dropped = 0
        self.over = threading.Event()
        self._handler_threads: dict[logging.Handler, HandlerThread] = {}
        self._waiting: SimpleQueue[Entry] = SimpleQueue()
        # Lines beyond the first of each entry: added, by the one thread that adds several, and taken.
        self._more_put = self._more_taken = 0
        self._writing = False
        self._moved_at = time.monotonic()  # when it last began or finished writing

    def start(self, threads: NeededThreads) -> None:
        """Make all loggers of this package write through a thread."""
        threads.start("log", self.run, self.over)
        process_log.writer = self

    def put(self, logger: logging.Logger, line: Written) -> None:
        """Add a line. Any thread may call it. It waits for space, but not for a hanging log handler."""
        while self._waiting.qsize() + self._more_put - self._more_taken >= MOST_WAITING:
            if time.monotonic() - self._moved_at > PATIENCE:
                self.dropped += _count(line)
                return
            time.sleep(PAUSE)  # only in a flood; a condition variable would need a lock for each line
        if isinstance(line, DeferredRecords):
            self._more_put += _count(line) - 1
        self._waiting.put((logger, line))

    def run(self) -> None:
        """Write lines until closed."""
        while not self.over.is_set():
            self.run_once()

    def run_once(self) -> None:
        """Write the waiting lines, or wait for a line."""
        try:
            lines = [self._waiting.get(timeout=TICK)]
        except Empty:
            write_all(self._notices(), self._handle)
            return
        self._writing, self._moved_at = True, time.monotonic()
        try:
            count = _count(lines[0][1])
            with suppress(Empty):
                while count <= MOST_AT_ONCE:
                    lines.append(self._waiting.get_nowait())
                    count += _count(lines[-1][1])
            self._more_taken += count - len(lines)
            dropped, self.dropped = self.dropped, 0
            write_all([*lines, *([_notice(DROPPED, dropped)] if dropped else ()), *self._notices()], self._handle)
        finally:
            self._writing = False
            self._moved_at = time.monotonic()
        if count > FLOOD and self._waiting.empty():
            self.over.wait(LINGER)

    def close(self, patience: float) -> None:
        """Wait until everything is written, at most ``patience`` seconds. Then loggers write directly again."""
        process_log.writer = AT_ONCE
        until = time.monotonic() + patience
        threads = self._handler_threads
        while not (is_written := not self._writing and self._waiting.empty()) or any(
            one.waiting for one in list(threads.values())
        ):
            if time.monotonic() >= until:
                break
            time.sleep(0.002)
        self.over.set()
        if is_written:  # handlers with a thread get no more lines
            write_all(self._notices(at_end=True), lambda handler, record: None)

    def _handle(self, handler: logging.Handler, record: logging.LogRecord) -> None:
        if handler not in self._handler_threads:
            self._handler_threads[handler] = HandlerThread(handler)
        self._handler_threads[handler].put(record)

    def _notices(self, *, at_end: bool = False) -> list[Entry]:
        """Return notices of the log handlers that lost lines."""
        return [notice for one in list(self._handler_threads.values()) for notice in one.notices(at_end=at_end)]


def _count(line: Written) -> int:
    return len(line) if isinstance(line, DeferredRecords) else 1


def _notice(text: str, *values: object) -> Entry:
    return _ours, _ours.makeRecord(_ours.name, logging.WARNING, __file__, 0, text, values, None)


# The format of log lines: as the project configures, otherwise plain on standard error, or JSON if the flag says so.


class Plain(logging.Formatter):
    """Time, level, logger and message. It formats the time once a second, not for each line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._second, self._shown = 0, ""

    def format(self, record: logging.LogRecord | DeferredRecord) -> str:
        text = self._before(record.created, record.levelname, record.name) + _inert(record.getMessage())
        if record.exc_info:  # indented, so that an exception cannot imitate a log line
            lines = self.formatException(record.exc_info).splitlines()
            text = "\n    ".join([text, *(_inert(line) for line in lines)])
        return text

    def format_all(self, lines: DeferredRecords, end: str) -> str:
        before = self._before(lines.created, logging.getLevelName(lines.level), lines.place.logger)
        return "".join([f"{before}{_inert(message)}{end}" for message in lines.messages()])

    def _before(self, created: float, level: str, name: str) -> str:
        second = int(created)
        if second != self._second:
            self._second, self._shown = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        return f"{self._shown},{int((created - second) * 1000):03d} {level} {name}: "


def add_log_format(parser: CommandParser) -> None:
    what = "json: write lines on standard output and standard error as JSON objects; default: as LOGGING configures"
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help=what)


def configure(log_format: str = "text", stream: Any = None) -> None:
    """Show Pulse's log lines. With JSON, also convert all other lines on standard output and standard error."""
    ours = logging.getLogger("pulse_django")
    if not ours.handlers and not logging.getLogger().handlers:  # the project has not configured them
        handler = logging.StreamHandler(stream or sys.stderr)
        handler.setFormatter(Plain())
        ours.addHandler(handler)
        if ours.level == logging.NOTSET:
            ours.setLevel(logging.INFO)
        ours.propagate = False
        if not settings.LOGGING and DJANGOS_TASKS.level == logging.NOTSET:  # its lines repeat those of Pulse
            DJANGOS_TASKS.setLevel(logging.ERROR)
    if log_format == "json":
        loggers = [logging.getLogger(), *logging.Logger.manager.loggerDict.values()]
        # Some entries are placeholders of unused loggers. The last resort writes for loggers without a handler.
        handlers = [one for logger in loggers if isinstance(logger, logging.Logger) for one in logger.handlers]
        for one in [*handlers, *filter(None, [logging.lastResort])]:
            if isinstance(one, _STREAMS) and getattr(one, "stream", None) in (sys.stdout, sys.stderr):
                one.setFormatter(Json())


def _inert(text: str) -> str:
    """Escape characters that a terminal obeys. Other code may log under these names, too."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


# Log lines as JSON, one object for each line, for log collectors.


# The attributes of every record. All other attributes are the facts of its line.
_OF_EVERY_RECORD = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class Json(logging.Formatter):
    """Time, level, logger and message, the facts of the line, and the traceback of its exception.

    Characters outside ASCII are escaped, so that no value can forge a line or control a terminal.
    """

    def format(self, record: logging.LogRecord | DeferredRecord) -> str:
        if isinstance(record, DeferredRecord):
            facts = dict(record.facts())
        else:
            facts = {key: value for key, value in record.__dict__.items() if key not in _OF_EVERY_RECORD}
        if record.exc_info and record.exc_info != (None, None, None):
            facts["traceback"] = self.formatException(record.exc_info)
        elif record.exc_text:
            facts["traceback"] = record.exc_text
        if record.stack_info:
            facts["stack"] = record.stack_info
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {**facts, "time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        try:
            return json.dumps(line, default=_shown, allow_nan=False)
        except Exception:  # keys that are not strings, NaN, cycles, numbers with too many digits
            return json.dumps({_shown(key): _dumpable(value) for key, value in line.items()})


_STREAMS = (logging.StreamHandler, type(logging.lastResort))


def _dumpable(value: Any) -> Any:
    """Return a value if JSON has it, or else its repr."""
    try:
        json.dumps(value, allow_nan=False)
    except Exception:
        return _shown(value)
    return value


def _shown(value: Any) -> str:
    """Return the repr of a value. It may be code of the project, and raise anything."""
    try:
        return value if isinstance(value, str) else repr(value)
    except Exception:
        return f"<{type(value).__name__} that cannot be shown>"
