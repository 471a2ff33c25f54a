"""Logs how runs ended, and sends the signals. The next reports do not wait for it."""

from __future__ import annotations

import time
from queue import Empty, SimpleQueue
from threading import Event

from pulse_django.execution.events import announce
from pulse_django.execution.judging import Performed
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.verb_results import Settled

from .run_logs import log_lost, log_run

logger = SafeLogger("pulse_django.worker")

TICK = 0.5


class RunEvents:
    def __init__(self) -> None:
        self._inbox: SimpleQueue[tuple[list[Performed], Settled] | None] = SimpleQueue()
        self._busy = False

    @property
    def is_idle(self) -> bool:
        return self._inbox.empty() and not self._busy

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
        self._busy = True
        ended, settled = batch
        try:
            for performed in ended:
                _publish(performed, settled)
        finally:
            self._busy = False


def _publish(performed: Performed, settled: Settled) -> None:
    """Log one run and send its signals. What the project's code raises changes nothing: the run is settled."""
    try:
        _log_and_announce(performed, settled)
    except BaseException:
        logger.exception("Logging the end of job %d failed", performed.run.claim.job_id)


def _log_and_announce(performed: Performed, settled: Settled) -> None:
    run, report = performed.run, performed.report
    if report is not None and report.lease in settled.lost:
        log_lost(run, f"its late outcome {report.outcome.name} is recorded in the ledger", report.outcome.name)
    elif report is not None or run.completed:
        took = 0.0 if run.begun_at is None else (performed.ended_at or run.begun_at) - run.begun_at
        status = settled.accepted.get(report.lease, "reported") if report is not None else "COMPLETED"
        log_run(run, report, status, took, performed.error)
    announce(performed, settled)
