"""What a worker logs: one line for each run, with its facts as ``extra`` for those who log JSON.

Names come from rows and hosts. They are shown as Python would show them, so that none can forge a line.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any

from pulse_django import conf
from pulse_django.execution.log_records import Place, make_record
from pulse_django.execution.masking import shown
from pulse_django.execution.run import Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.store.json_columns import UNREADABLE
from pulse_django.words.outcomes import UNKNOWN_TASK, Failed, OutcomeName
from pulse_django.words.payloads import one_line
from pulse_django.words.states import TERMINAL, Status
from pulse_django.words.verb_results import Report

logger = SafeLogger("pulse_django.jobs")

_PLACE_OF_RUNS = Place(logger.logger.name, __file__, "log_run")
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
    record = make_record(_PLACE_OF_RUNS, level, text, values, facts_of(run, outcome, took))
    if level == logging.ERROR and error is not None:
        record.exc_info = (type(error), error, error.__traceback__)
    SafeLogger.write(logger.logger, record)


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


def configure(stream: Any = None) -> None:
    """Show our lines on standard error, unless the project has made up its mind about them."""
    ours, root = logging.getLogger("pulse_django"), logging.getLogger()
    if ours.handlers or root.handlers:
        return
    handler = logging.StreamHandler(stream or sys.stderr)
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
