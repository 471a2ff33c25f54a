"""Looks for runs that are over without anybody having said so, and sends them through retry or dead letter.

Any number of watchdogs may run, in workers and alone; they share the work without knowing of each other.
"""

from __future__ import annotations

import logging
import random
import time

from .. import conf
from ..answers import Reaped
from ..managers import REAP_LIMIT
from ..models import Job
from ..signals import job_dead_lettered, job_reaped, tell
from ..states import Status
from .faults import Fault, fault_of
from .lines import Line

logger = logging.getLogger("pulse_django.watchdog")

OUTAGES = (Fault.CUT_OFF, Fault.FULL)
JITTER = 0.2  # the share by which a sweep may come early


class Watchdog:
    def __init__(self, line: Line) -> None:
        self.line = line
        self._trusts_leases_at = float("-inf")
        self._away = True  # as far as we know: nobody has asked yet
        self._asked = False

    def run_once(self) -> float:
        """Sweep. Return for how long to wait until the next."""
        self._wait_out_an_outage()
        if time.monotonic() >= self._trusts_leases_at:
            self.sweep()
        return conf.current().watchdog_interval.total_seconds() * random.uniform(1 - JITTER, 1.0)  # noqa: S311

    def sweep(self) -> list[Reaped]:
        """End every run that is over."""
        ended: list[Reaped] = []
        while True:
            reaped: list[Reaped] = self.line.call(self.line.jobs.reap)
            for one in reaped:
                self._tell(one)
            ended += reaped
            if len(reaped) < REAP_LIMIT:
                return ended

    def _wait_out_an_outage(self) -> None:
        """While the database was away nobody could extend a lease: that they ran out says nothing about their holders.

        It was away if it could not be reached, or if it has only just been started. A connection that was merely closed
        is no outage: the next one is there at once.
        """
        ttl = conf.current().lease_ttl.total_seconds()
        up_for = self._server_up_for()
        wait = max(ttl - up_for, ttl if self._away and self._asked else 0.0)
        self._away, self._asked = False, True
        until = time.monotonic() + wait
        if wait > 0 and until > self._trusts_leases_at + 1.0:
            logger.info("The database was away: leases that ran out are believed in %.1f s", wait)
        if wait > 0:
            self._trusts_leases_at = max(until, self._trusts_leases_at)

    def _server_up_for(self) -> float:
        try:
            return float(self.line.call(self.line.jobs.server_up_for))
        except Exception as error:
            if fault_of(error) not in OUTAGES:
                raise
        try:
            return float(self.line.call(self.line.jobs.server_up_for))
        except Exception:
            self._away = True
            raise

    def _tell(self, reaped: Reaped) -> None:
        lease = reaped.lease
        logger.warning(
            "job %d attempt %d: %s, held by %s; now %s",
            lease.job_id,
            lease.attempt,
            reaped.outcome,
            lease.holder,
            reaped.status,
            extra={"job_id": lease.job_id, "attempt": lease.attempt, "holder": lease.holder},
        )
        tell(job_reaped, Job, reaped=reaped)
        if reaped.status is Status.DEAD_LETTERED:
            tell(job_dead_lettered, Job, job_id=lease.job_id, reason=str(reaped.outcome))
