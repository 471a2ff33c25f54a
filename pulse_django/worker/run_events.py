"""Log the ends of runs, and send the signals. The next reports do not wait for it."""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any

from pulse_django import conf
from pulse_django.queue.database.sql_functions import UNREADABLE
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.outcomes import CANNOT_DECRYPT, UNKNOWN_TASK, Failed, OutcomeName
from pulse_django.queue.words.payloads import one_line
from pulse_django.queue.words.states import TERMINAL, Status
from pulse_django.queue.words.verb_results import Report, Settled
from pulse_django.run import django_log
from pulse_django.run.codec import codec
from pulse_django.run.django_log import DeferredRecords, Place, make_line
from pulse_django.run.events import announce
from pulse_django.run.registry import task_finished
from pulse_django.run.run import Performed, Run
from pulse_django.safe_logging import SafeLogger, process_log
from pulse_django.signals import is_end_heard

logger = SafeLogger("pulse_django.worker")

TICK = 0.5


class RunEvents:
    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[list[Performed], Settled] | None] = SimpleQueue()

    def add(self, performed: list[Performed], settled: Settled) -> None:
        """Add a batch to publish. The reporter calls it."""
        now = time.monotonic()
        for one in performed:
            one.ended_at = one.ended_at or now
        self._inbox.put((performed, settled))

    def interrupt(self) -> None:
        self._inbox.put(None)

    def run(self, finished: Event) -> None:
        """Publish until ``finished`` is set and everything was published."""
        while not (finished.is_set() and self._inbox.empty()):
            self.run_once()

    def run_once(self) -> None:
        try:
            batch = self._inbox.get(timeout=TICK)
        except Empty:
            return
        if batch is None:
            return
        ended, settled = batch
        is_heard = is_end_heard() or django_log.is_heard(task_finished)
        if is_heard or logging.getLogRecordFactory() is not logging.LogRecord:
            is_logged_alone = [True] * len(ended)
        else:
            is_logged_alone = [not _is_plain(performed, settled) for performed in ended]
        for is_alone, some in groupby(zip(is_logged_alone, ended, strict=True), key=itemgetter(0)):
            if not is_alone:
                _log_completed([(performed.run.claim, _took(performed)) for _, performed in some])
                continue
            for _, performed in some:
                try:
                    _log_and_announce(performed, settled)
                except BaseException:  # raised by the project's code; the run is settled anyway
                    logger.exception("Logging the end of job %d failed", performed.run.claim.job_id)


def _log_and_announce(performed: Performed, settled: Settled) -> None:
    run, report = performed.run, performed.report
    if report is not None and report.lease in settled.lost:
        log_lost(run, f"its late outcome {report.outcome.name} is recorded in the ledger", report.outcome.name)
    elif report is not None or run.completed:
        took = _took(performed)
        status = settled.accepted.get(report.lease, "reported") if report is not None else "COMPLETED"
        log_run(run, report, status, took, performed.error)
    announce(performed, settled)


def _is_plain(performed: Performed, settled: Settled) -> bool:
    """Return whether it only completed its job, without anything else to log or announce."""
    report = performed.report
    if report is None or performed.error is not None:
        return False
    return not settled.has_others or settled.accepted.get(report.lease) is Status.COMPLETED


def _took(performed: Performed) -> float:
    begun_at = performed.run.begun_at
    return 0.0 if begun_at is None else (performed.ended_at or begun_at) - begun_at


# The log lines of a worker: one for each run, with its facts as ``extra`` for JSON logs.
#
# Names come from rows and hosts. They are logged as ``repr()``, so that they cannot forge a line.


job_logger = SafeLogger("pulse_django.jobs")

_PLACE_OF_RUNS = Place(job_logger.logger.name, __file__, "log_run")
_PLACE = re.compile(r'^  File (".+", line \d+, in .+)$', re.MULTILINE)
MOST_SHOWN = 200  # characters of arguments
_GOOD = frozenset(
    {OutcomeName.SUCCEEDED, OutcomeName.SNOOZED, OutcomeName.WAITED, OutcomeName.CANCELLED, OutcomeName.DISCARDED}
)


_ENDED = "job %d %r attempt %d: %s in %.0f ms"


_Completed = tuple[Claim, float]  # with its duration


def _log_completed(ended: Sequence[_Completed]) -> None:
    """Log the same lines as ``log_run``, for runs that completed their jobs."""
    if job_logger.logger.isEnabledFor(logging.INFO):
        lines = DeferredRecords(_PLACE_OF_RUNS, logging.INFO, _ENDED, ended, _values_of_completed, _facts_of_completed)
        process_log.writer.put(job_logger.logger, lines)


def _values_of_completed(completed: _Completed) -> tuple[Any, ...]:
    claim, took = completed
    job_id, _, attempt = claim.lease
    return job_id, claim.task, attempt, Status.COMPLETED.value, took * 1000


def _facts_of_completed(completed: _Completed) -> dict[str, Any]:
    claim, took = completed
    return facts_of(claim, OutcomeName.SUCCEEDED, took)


def log_run(run: Run, report: Report | None, status: str, took: float, error: BaseException | None = None) -> None:
    """Log the end of a run: INFO for a success, WARNING for a failure, ERROR for a dead letter.

    A failure is logged with the line of code that raised it, and a dead letter with its traceback, for error trackers.
    """
    outcome = report.outcome.name if report is not None else OutcomeName.SUCCEEDED
    reason = getattr(report.decision, "reason", "") if report is not None else ""
    level = _level(outcome, status, reason)
    if not job_logger.logger.isEnabledFor(level):
        return
    claim = run.claim
    text = _ENDED
    values: tuple[Any, ...] = (claim.job_id, claim.task, claim.attempt, status, took * 1000)
    if status not in TERMINAL:  # the next step comes after the duration
        text = "job %d %r attempt %d: ended after %.0f ms; %s"
        delay = getattr(report.decision, "delay", None) if report is not None else None
        due_in = "" if delay is None else f", due in {delay.total_seconds():.3g} s"
        values = (*values[:3], took * 1000, f"{status}{due_in}")
    if reason:
        text, values = f"{text}: %s", (*values, one_line(reason))
    if place := _place_of_failure(report):
        text, values = f"{text} (%s)", (*values, place)
    if level != logging.INFO and conf.current().log_arguments:
        text, values = f"{text} (%s)", (*values, one_line(_arguments_of(run)[:MOST_SHOWN]))
    error = error if level == logging.ERROR else None
    facts = partial(facts_of, claim, outcome, took)
    process_log.writer.put(job_logger.logger, make_line(_PLACE_OF_RUNS, level, text, values, facts, error))


def _place_of_failure(report: Report | None) -> str:
    """Return the innermost file and line of the traceback, in a form that tools turn into a link."""
    if report is None:
        return ""
    outcome = report.outcome
    text = outcome.error.traceback if isinstance(outcome, Failed) else getattr(outcome, "stack", "")
    places = _PLACE.findall(text)
    return one_line(places[-1]) if places else ""


def _arguments_of(run: Run) -> str:
    claim = run.claim
    try:
        seen = codec().shown(claim.task, claim.args, claim.kwargs, claim.sensitive)
    except (ValueError, RecursionError):  # probably written by hand
        return UNREADABLE
    return "the task is unknown to this process" if seen is None else f"{json.dumps(seen[0])} {json.dumps(seen[1])}"


def facts_of(claim: Claim, outcome: str, took: float) -> dict[str, Any]:
    facts = {"job_id": claim.job_id, "task": claim.task, "attempt": claim.attempt, "queue": claim.queue}
    facts |= {"holder": claim.lease.holder, "outcome": str(outcome), "duration": took}
    return facts if claim.meta_json is None else facts | {"meta": claim.meta}


def log_lost(run: Run, what: str, outcome: str = "") -> None:
    """Log that a lease was lost, and the consequence for its run."""
    claim, text = run.claim, "job %d %r attempt %d: lease lost; %s"
    job_logger.warning(text, claim.job_id, claim.task, claim.attempt, what, extra=facts_of(claim, outcome, 0))


def log_out_of_touch(run: Run, what: str) -> None:
    """Log that a lease was not extended in time, although no other run is known to have the job."""
    claim = run.claim
    text = "job %d %r attempt %d: the lease was not extended in time; %s"
    job_logger.warning(text, claim.job_id, claim.task, claim.attempt, what, extra=facts_of(claim, "", 0))


def _level(outcome: str, status: str, reason: str) -> int:
    if status == Status.DEAD_LETTERED:
        return logging.ERROR
    if outcome == OutcomeName.RELEASED:
        return logging.WARNING if reason.startswith((UNKNOWN_TASK, CANNOT_DECRYPT)) else logging.INFO
    return logging.INFO if outcome in _GOOD else logging.WARNING
