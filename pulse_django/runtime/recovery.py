"""What becomes of the jobs of a child that died: about a second later they are somebody else's."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue

from .. import conf
from ..answers import Report
from ..budgets import Budget
from ..decisions import decide
from ..leases import Lease
from ..models import Job
from ..outcomes import Outcome, Released, WorkerLost
from ..signals import job_dead_lettered, tell, worker_lost
from ..states import Status
from .holdings import Held
from .lines import Line

logger = logging.getLogger("pulse_django.recovery")

TICK = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """A child that is gone, and what it left."""

    holder_prefix: str
    held: Sequence[Held]  # as it stood in the shared memory at the end
    progress: Mapping[Lease, str]  # that no heartbeat has carried yet
    reason: str
    asked_for: bool  # we ended it, because it had to stop: its runs do not count
    at: float


class Recovery:
    """Settles, under their fences, the leases of children that are certainly dead.

    What had begun is a lost worker: an attempt. What had not is handed back. The table is asked for what else the child
    had claimed: it may have died between its claim and the note of it.
    """

    def __init__(self, line: Line) -> None:
        self.line = line
        self._deaths: SimpleQueue[Death] = SimpleQueue()
        self._open: Death | None = None
        self.is_idle = True

    def mourn(self, death: Death) -> None:
        """Take over what a child left. Called by another thread."""
        self.is_idle = False
        self._deaths.put(death)

    def run_once(self) -> float:
        """Settle one death, or wait for one. What the database does not take now is tried again."""
        if self._open is None:
            try:
                self._open = self._deaths.get(timeout=TICK)
            except Empty:
                self.is_idle = True
                return 0.0
        if time.monotonic() - self._open.at > conf.current().lease_ttl.total_seconds() * 2:
            logger.error("%s: its leases have run out; a watchdog will see to them", self._open.holder_prefix)
            self._open = None
            return 0.0
        skipped = self._settle(self._open)
        if skipped:
            return TICK / 2
        self._open = None
        return 0.0

    def _settle(self, death: Death) -> bool:
        begun = {held.lease for held in death.held if held.begun}
        left: list[Job] = self.line.call(self.line.jobs.held_by, death.holder_prefix)
        reports = [self._report_on(job, death, begun) for job in left]
        if not reports:
            return False
        settled = self.line.call(self.line.jobs.settle, reports, wait=False)
        for report in reports:
            if (status := settled.accepted.get(report.lease)) is not None:
                self._tell(report, status)
        leases = tuple(settled.accepted)
        logger.warning("%d jobs recovered from a process %s", len(leases), death.reason)
        tell(worker_lost, Job, name=death.holder_prefix, reason=death.reason, leases=leases)
        return bool(settled.skipped)

    def _report_on(self, job: Job, death: Death, begun: set[Lease]) -> Report:
        lease = Lease(job.pk, str(job.locked_by), job.attempts)
        outcome: Outcome = Released()
        if lease in begun and not death.asked_for:
            outcome = WorkerLost(f"worker process {death.reason}")
        budget = Budget(attempts=job.attempts, refunds=job.refunds, max_attempts=job.max_attempts)
        decision = decide(outcome, budget, fleet=conf.current().backoff)
        return Report(lease, outcome, decision, death.progress.get(lease))

    def _tell(self, report: Report, status: Status) -> None:
        reason = getattr(report.decision, "reason", "")
        logger.warning(
            "job %d attempt %d: %s after a lost worker%s",
            report.lease.job_id,
            report.lease.attempt,
            status,
            f": {reason}" if reason else "",
            extra={"job_id": report.lease.job_id, "attempt": report.lease.attempt, "holder": report.lease.holder},
        )
        if status is Status.DEAD_LETTERED:
            tell(job_dead_lettered, Job, job_id=report.lease.job_id, reason=reason)
