"""A worker in its smallest form: one job at a time, a thread that keeps its lease, a look for dead runs."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection

from django.db import Error, connections

from . import conf
from .answers import Report, Settled
from .identity import Identity
from .leases import Claim
from .models import Job
from .performing import announce, perform
from .registry import registry
from .runs import PAUSE_BEFORE_LOCKED_ROW, Run

logger = logging.getLogger(__name__)


class Worker:
    def __init__(self, identity: Identity, *, queues: Collection[str] | None = None) -> None:
        self.identity = identity
        self.queues = queues
        self.stopping = threading.Event()
        self._turn = 0
        self._reaped_at = float("-inf")

    def run(self, *, burst: bool = False) -> None:
        """Work until ``stopping`` is set; with ``burst`` until nothing is due."""
        registry.discover()
        while not self.stopping.is_set():
            try:
                worked = self.run_once()
            except Error:
                logger.exception("The database did not answer; trying again")
                forget_connections()
                worked = False
            if not worked and burst:
                return
            if not worked:
                self.stopping.wait(conf.current().poll_interval.total_seconds())

    def run_once(self) -> bool:
        """Look for dead runs when it is time, and run one job. Return whether there was one."""
        self._reap_now_and_then()
        self._turn += 1
        granted_at = time.monotonic()
        claims = Job.objects.claim(self.identity, lanes=Job.objects.lanes(self.queues), turn=self._turn)
        for claim in claims:
            self._run(claim, granted_at)
        return bool(claims)

    def _run(self, claim: Claim, granted_at: float) -> None:
        run, pid = Run(claim, granted_at=granted_at), os.getpid()
        with Heartbeat(run):
            performed = perform(run)
            if os.getpid() != pid:
                os._exit(0)  # a child that the handler forked and let return: it is no worker
            forget_connections()
            settled = self._settle(run, performed.report)
        announce(performed, settled)
        said = _said(performed.report, settled)
        logger.info("job %d %r attempt %d: %s", claim.job_id, claim.task, claim.attempt, said)

    def _settle(self, run: Run, report: Report | None) -> Settled:
        """Report, and report again while somebody has the row locked: also when told to stop, or the work is lost."""
        while True:
            try:
                settled = Job.objects.settle([report] if report else [], wait=False)
            except Error:
                if run.lost or run.lease_remaining() <= 0:
                    raise
                logger.exception("The report of job %d did not arrive; sending it again", run.claim.job_id)
                forget_connections()
            else:
                if not settled.skipped or run.lost or run.lease_remaining() <= 0:
                    return settled
            time.sleep(PAUSE_BEFORE_LOCKED_ROW)

    def _reap_now_and_then(self) -> None:
        if time.monotonic() - self._reaped_at < conf.current().watchdog_interval.total_seconds():
            return
        for reaped in Job.objects.reap():
            logger.warning("job %d: %s by %s", reaped.lease.job_id, reaped.outcome, reaped.lease.holder)
        self._reaped_at = time.monotonic()


def forget_connections() -> None:
    """Start the next statement on new connections: a handler may have left anything behind on these.

    An open or broken transaction, a changed search_path or role, autocommit off, a closed socket: none can be told from
    outside for sure, and all of them end with the connection.
    """
    for alias in list(connections):
        wrapper = connections[alias]
        if wrapper.connection is not None:
            wrapper.connection.close()
        del connections[alias]


class Heartbeat:
    """Extends a run's lease from a thread and a connection of its own until the run has been reported."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"heartbeat-{run.claim.job_id}", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        interval = min(self._run.claim.ttl / 3, conf.current().heartbeat_interval).total_seconds()
        try:
            while not self._over.wait(interval) and not self._run.lost:
                self._beat_once()
        finally:
            forget_connections()

    def _beat_once(self) -> None:
        lease, progress, sent_at = self._run.claim.lease, self._run.take_progress(), time.monotonic()
        try:
            beat = Job.objects.heartbeat([lease], {lease: progress} if progress else None)
        except Exception:  # whatever it is, the next beat may succeed, and this thread must live to send it
            logger.exception("A heartbeat of job %d failed", lease.job_id)
            self._run.give_back(progress)
            forget_connections()
            return
        self._run.lost = lease in beat.lost
        self._run.cancelled = lease in beat.cancelled
        if lease in beat.alive:
            self._run.extended(sent_at)
        else:
            self._run.give_back(progress)


def _said(report: Report | None, settled: Settled) -> str:
    if report is None:
        return "completed in its own transaction, or lost"
    return str(settled.accepted.get(report.lease, "its lease was lost"))
