"""Looks for runs that are over without anybody having said so, and sends them through retry or dead letter.

Any number of watchdogs may run, in workers and alone; they share the work without knowing of each other.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta

from .. import conf, unknown
from ..answers import Reaped
from ..managers import PRUNE_LIMIT, REAP_LIMIT
from ..models import Job, Queue, Worker
from ..payloads import one_line
from ..safe_logging import SafeLogger
from ..signals import job_dead_lettered, job_reaped, tell
from ..states import Status
from .faults import Fault, fault_of
from .lines import Line

logger = SafeLogger("pulse_django.watchdog")

OUTAGES = (Fault.CUT_OFF, Fault.FULL)
JITTER = 0.2  # the share by which a sweep may come early
BETWEEN_HOUSEKEEPINGS = 60.0  # seconds; nobody waits for it
KEEP_WORKERS = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did."""

    reaped: list[Reaped]
    resumed: list[str] = field(default_factory=list)  # queues
    gone: list[str] = field(default_factory=list)  # workers
    given_up: list[int] = field(default_factory=list)  # jobs whose task no live worker knows
    pruned: dict[Status, int] = field(default_factory=dict)  # jobs deleted
    has_more: bool = False  # the next sweep should not wait
    took: float = 0.0  # seconds

    def to_json(self) -> str:
        """One line for a log."""
        outcomes = Counter(str(one.outcome) for one in self.reaped)
        said = {"reaped": len(self.reaped), "outcomes": outcomes, "resumed": self.resumed, "gone": self.gone}
        said |= {"given_up": self.given_up}
        return json.dumps(said | {"pruned": self.pruned, "took": round(self.took, 4)})


class Watchdog:
    def __init__(self, line: Line, interval: float | None = None) -> None:
        self.line = line
        self.interval = interval or conf.current().watchdog_interval.total_seconds()
        self._trusts_leases_at = float("-inf")
        self._away = True  # as far as we know: nobody has asked yet
        self._asked = False
        self._up_for = 0.0  # the server, when we last asked
        self._kept_house_at = float("-inf")

    def run_once(self) -> float:
        """Sweep. Return for how long to wait until the next."""
        return self.pause_after(self.sweep())

    def pause_after(self, swept: Swept) -> float:
        """Return for how long to wait after a sweep: at once if it left something, else never quite as long as before,
        so that many watchdogs do not come in step.
        """
        return 0.0 if swept.has_more else self.interval * random.uniform(1 - JITTER, 1.0)  # noqa: S311 - no secret

    def sweep(self, *, housekeeping: bool | None = None) -> Swept:
        """End every run that is over; now and then, or if asked to, see to what is less urgent."""
        begin = time.monotonic()
        self._wait_out_an_outage()
        try:
            return self._swept(begin, housekeeping)
        finally:
            # However long a sweep was at work, it did not sleep.
            self._up_for += time.monotonic() - begin

    def _swept(self, begin: float, housekeeping: bool | None) -> Swept:
        reaped = self._reap() if begin >= self._trusts_leases_at else []
        if housekeeping is None:
            housekeeping = begin - self._kept_house_at >= BETWEEN_HOUSEKEEPINGS
        if not housekeeping:
            return Swept(reaped=reaped, took=time.monotonic() - begin)
        swept = self._keep_house(reaped)
        self._kept_house_at = float("-inf") if swept.has_more else begin
        return replace(swept, took=time.monotonic() - begin)

    def _reap(self) -> list[Reaped]:
        ended: list[Reaped] = []
        while True:
            reaped: list[Reaped] = self.line.call(self.line.jobs.reap)
            for one in reaped:
                self._tell(one)
            ended += reaped
            if len(reaped) < REAP_LIMIT:
                return ended

    def _keep_house(self, reaped: list[Reaped]) -> Swept:
        """One bounded statement for each kind of thing; what is left over is for the next sweep."""
        settings, alias = conf.current(), self.line.alias
        resumed = self.line.call(Queue.objects.db_manager(alias).resume_ended)
        silence = settings.worker_silence
        gone = self.line.call(Worker.objects.db_manager(alias).mark_gone, silence)
        self.line.call(Worker.objects.db_manager(alias).forget, KEEP_WORKERS)
        given_up = self.line.call(unknown.give_up, alias)
        pruned = {}
        for status, kept in (
            (Status.COMPLETED, settings.keep_completed),
            (Status.CANCELLED, settings.keep_cancelled),
            (Status.DEAD_LETTERED, settings.keep_dead_letters),
        ):
            if kept:
                pruned[status] = self.line.call(self.line.jobs.prune, status, older_than=kept)
        for queue in resumed:
            logger.info("The pause of queue %r has ended", queue)
        for worker in gone:
            logger.warning("Worker %s has said nothing for %s: taken for gone", one_line(worker), silence)
        return Swept(
            reaped=reaped,
            resumed=resumed,
            gone=gone,
            given_up=given_up,
            pruned=pruned,
            has_more=PRUNE_LIMIT in pruned.values() or len(given_up) == unknown.MOST_AT_ONCE,
        )

    def _wait_out_an_outage(self) -> None:
        """While the database was away nobody could extend a lease: that they ran out says nothing about their holders.

        It was away if it could not be reached, or if it has only just been started; and for us, if we slept. That a
        connection was merely closed is no outage: the next one is there at once.
        """
        ttl = conf.current().lease_ttl.total_seconds()
        up_for = self._server_up_for()
        wait = max(ttl - up_for, ttl if self._away and self._asked else 0.0)
        if self._slept(up_for, ttl):
            wait = max(wait, ttl)
        self._away, self._asked, self._up_for = False, True, up_for
        until = time.monotonic() + wait
        if wait > 0 and until > self._trusts_leases_at + 1.0:
            logger.info("The database was away: leases that ran out are believed in %.1f s", wait)
        if wait > 0:
            self._trusts_leases_at = max(until, self._trusts_leases_at)

    def _slept(self, up_for: float, ttl: float) -> bool:
        """Whether this host did not get to run for a lease or longer, by the server's clock.

        Its own workers could not beat either, and are about to. Our clock may have slept as well.
        """
        return self._asked and not self._away and up_for - self._up_for > max(ttl, 1.5 * self.interval)

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
            one_line(lease.holder),
            reaped.status,
            extra={"job_id": lease.job_id, "attempt": lease.attempt, "holder": lease.holder},
        )
        tell(job_reaped, Job, reaped=reaped)
        if reaped.status is Status.DEAD_LETTERED:
            tell(job_dead_lettered, Job, job_id=lease.job_id, reason=str(reaped.outcome))
