"""Tells whoever wants to know how runs ended: a line in the log, and signals. The next reports do not wait for it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event

from pulse_django.execution.events import announce
from pulse_django.execution.execute import Performed
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.verb_results import Settled

from .run_logs import OneWrite, log_lost, log_run

logger = SafeLogger("pulse_django.worker")

TICK = 0.5


@dataclass(frozen=True, slots=True)
class Over:
    """What one settle brought to an end."""

    performed: list[Performed]
    settled: Settled
    at: float


class RunEvents:
    def __init__(self) -> None:
        self._inbox: SimpleQueue[Over | None] = SimpleQueue()
        self._busy = False

    @property
    def is_idle(self) -> bool:
        return self._inbox.empty() and not self._busy

    def tell(self, performed: list[Performed], settled: Settled) -> None:
        """Take over what is to be told. Called by the reporter."""
        self._inbox.put(Over(performed, settled, time.monotonic()))

    def interrupt(self) -> None:
        self._inbox.put(None)

    def run(self, finished: Event) -> None:
        """Tell until told to finish, and everything has been told."""
        while not (finished.is_set() and self._inbox.empty()):
            self.run_once()

    def run_once(self) -> None:
        try:
            over = self._inbox.get(timeout=TICK)
        except Empty:
            return
        if over is None:
            return
        self._busy = True
        try:
            with OneWrite.batch():
                for performed in over.performed:
                    _tell_of(performed, over)
        finally:
            self._busy = False


def _tell_of(performed: Performed, over: Over) -> None:
    """Log one run, and announce it. What the project's code raises meanwhile changes nothing: the run is settled."""
    try:
        _log_and_announce(performed, over)
    except BaseException:
        logger.exception("Logging the end of job %d failed", performed.run.claim.job_id)


def _log_and_announce(performed: Performed, over: Over) -> None:
    run, report = performed.run, performed.report
    if report is not None and report.lease in over.settled.lost:
        log_lost(run, f"its late outcome {report.outcome.name} is recorded in the ledger")
    elif report is not None or run.completed:
        took = 0.0 if run.begun_at is None else (performed.ended_at or over.at) - run.begun_at
        status = over.settled.accepted.get(report.lease, "reported") if report is not None else "COMPLETED"
        log_run(run, report, status, took, performed.error)
    announce(performed, over.settled)
