"""What a worker logs: one line for each run, with its facts as ``extra`` for those who log JSON.

Names come from rows and hosts. They are shown as Python would show them, so that none can forge a line.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

from pulse_django import conf
from pulse_django.execution.masking import shown
from pulse_django.execution.run import Run
from pulse_django.safe_logging import SafeLogger, write_now
from pulse_django.store.json_columns import UNREADABLE
from pulse_django.words.outcomes import UNKNOWN_TASK, Failed, OutcomeName
from pulse_django.words.payloads import one_line
from pulse_django.words.states import TERMINAL, Status
from pulse_django.words.verb_results import Report

logger = SafeLogger("pulse_django.jobs")

_here = threading.local()

_PLACE = re.compile(r'^  File (".+", line \d+, in .+)$', re.MULTILINE)
MOST_SHOWN = 200  # characters of arguments
_GOOD = frozenset({OutcomeName.SUCCEEDED, OutcomeName.SNOOZED, OutcomeName.CANCELLED, OutcomeName.DISCARDED})


def log_run(run: Run, report: Report | None, status: str, took: float, error: BaseException | None = None) -> None:
    """Tell how a run ended: INFO if all is well, WARNING if it failed, ERROR if the job is dead.

    A failure is logged with the line of code that raised it; a dead letter with its traceback, for error trackers.
    """
    outcome = report.outcome.name if report is not None else OutcomeName.SUCCEEDED
    reason = getattr(report.decision, "reason", "") if report is not None else ""
    level = _level(outcome, status, reason)
    if not logger.is_enabled_for(level):
        return
    claim = run.claim
    text = "job %d %r attempt %d: %s in %.0f ms"
    values: tuple[Any, ...] = (claim.job_id, claim.task, claim.attempt, status, took * 1000)
    if status not in TERMINAL:  # what comes next, and when, is not how long this took
        text = "job %d %r attempt %d: %s, after %.0f ms"
        values = (*values[:3], f"{status}{_in_how_long(report)}", took * 1000)
    if reason:
        text, values = f"{text}: %s", (*values, one_line(reason))
    if place := _place_of_failure(report):
        text, values = f"{text} (%s)", (*values, place)
    if level != logging.INFO and conf.current().log_arguments:
        text, values = f"{text} (%s)", (*values, one_line(_arguments_of(run)[:MOST_SHOWN]))
    record = _record(level, text, values, facts_of(run, outcome, took))
    if level == logging.ERROR and error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    write_now(logger.logger, record)


def _in_how_long(report: Report | None) -> str:
    delay = getattr(report.decision, "delay", None) if report is not None else None
    return f" in {delay.total_seconds():.3g} s" if delay is not None else ""


def _place_of_failure(report: Report | None) -> str:
    """Return the innermost line of the traceback that is code, as tools make it a link."""
    if report is None or not isinstance(report.outcome, Failed):
        return ""
    places = _PLACE.findall(report.outcome.error.traceback)
    return one_line(places[-1]) if places else ""


def _arguments_of(run: Run) -> str:
    claim = run.claim
    try:
        seen = shown(claim.task, claim.args, claim.kwargs, claim.masked)
    except (ValueError, RecursionError):  # written by hand, most likely
        return UNREADABLE
    return "the task is unknown to this process" if seen is None else f"{json.dumps(seen[0])} {json.dumps(seen[1])}"


def _record(level: int, text: str, values: tuple[Any, ...], facts: dict[str, Any]) -> logging.LogRecord:
    """Make a record as logger.log() does, but copy what is the same for every line instead of finding it out again:
    the file, the line, the thread and the process. That halves what a log line costs."""
    factory = logging.getLogRecordFactory()
    if factory is not logging.LogRecord:  # the project's own
        record = factory(logger.logger.name, level, __file__, 0, text, values, None, "log_run")
        record.__dict__ |= facts
        return record
    known: dict[str, Any] | None = getattr(_here, "known", None)
    if known is None or known["process"] != os.getpid():
        _here.known = known = vars(logging.LogRecord(logger.logger.name, level, __file__, 0, "", None, None, "log_run"))
    created = time.time()
    record = logging.LogRecord.__new__(logging.LogRecord)
    record.__dict__ |= known
    record.__dict__ |= facts
    record.msg, record.args, record.levelno, record.levelname = text, values, level, logging.getLevelName(level)
    record.created, record.msecs = created, (created - int(created)) * 1000
    record.relativeCreated = known["relativeCreated"] + (created - known["created"]) * 1000
    return record


def facts_of(run: Run, outcome: str, took: float) -> dict[str, Any]:
    claim = run.claim
    return {
        "job_id": claim.job_id,
        "task": claim.task,
        "attempt": claim.attempt,
        "queue": claim.queue,
        "holder": claim.lease.holder,
        "outcome": str(outcome),
        "duration": took,
    }


def log_lost(run: Run, what: str, outcome: str = "") -> None:
    """Log that a lease was lost, and what that meant for its run."""
    claim = run.claim
    logger.warning(
        "job %d %r attempt %d: lease lost; %s",
        claim.job_id,
        claim.task,
        claim.attempt,
        what,
        extra=facts_of(run, outcome, 0),
    )


def log_out_of_touch(run: Run, what: str) -> None:
    """Log that a lease was not extended in time, though no other run is known to have the job."""
    claim = run.claim
    text = "job %d %r attempt %d: the lease was not extended in time; %s"
    logger.warning(text, claim.job_id, claim.task, claim.attempt, what, extra=facts_of(run, "", 0))


class Plain(logging.Formatter):
    """Time, level, logger and message. It asks the calendar once a second and not for each line."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")
        self._second, self._shown = 0, ""

    def format(self, record: logging.LogRecord) -> str:
        second = int(record.created)
        if second != self._second:
            self._second, self._shown = second, time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(second))
        at = f"{self._shown},{int(record.msecs):03d}"
        text = f"{at} {record.levelname} {record.name}: {_inert(record.getMessage())}"
        if record.exc_info:  # indented, for an exception may say what a line of ours would
            lines = self.formatException(record.exc_info).splitlines()
            text = "\n    ".join([text, *(_inert(line) for line in lines)])
        return text


class OneWrite(logging.StreamHandler):  # type: ignore[type-arg]  # generic in the stubs only
    """Writes the lines of a batch of reports at once: a system call for each costs as much as the line."""

    _batching = threading.local()

    def emit(self, record: logging.LogRecord) -> None:
        lines: list[str] | None = getattr(self._batching, "lines", None)
        if lines is None:
            super().emit(record)
            return
        try:
            lines.append(self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)

    @classmethod
    @contextmanager
    def batch(cls) -> Iterator[None]:
        """Hold back what this thread logs until the end of the block. A stream that was closed loses it."""
        lines: list[str] = []
        cls._batching.lines = lines
        try:
            yield
        finally:
            cls._batching.lines = None
            if lines:
                for handler in logging.getLogger("pulse_django").handlers:
                    if isinstance(handler, cls):
                        with suppress(Exception):
                            handler.write("".join(lines))

    def write(self, text: str) -> None:
        with self.lock or nullcontext():
            self.stream.write(text)
            self.flush()


def configure(stream: Any = None) -> None:
    """Show our lines on standard error, unless the project has made up its mind about them."""
    ours, root = logging.getLogger("pulse_django"), logging.getLogger()
    if ours.handlers or root.handlers:
        return
    handler = OneWrite(stream or sys.stderr)
    handler.setFormatter(Plain())
    ours.addHandler(handler)
    if ours.level == logging.NOTSET:
        ours.setLevel(logging.INFO)
    ours.propagate = False


def _inert(text: str) -> str:
    """Escape what a terminal would obey; others than we log under our names too."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text)


def _level(outcome: str, status: str, reason: str) -> int:
    if status == Status.DEAD_LETTERED:
        return logging.ERROR
    if outcome == OutcomeName.RELEASED:
        return logging.WARNING if reason.startswith(UNKNOWN_TASK) else logging.INFO
    return logging.INFO if outcome in _GOOD else logging.WARNING
