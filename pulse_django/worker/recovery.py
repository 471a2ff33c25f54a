"""Recover the jobs of a child that died, within about a second."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.words.decisions import decide
from pulse_django.queue.words.leases import Lease
from pulse_django.queue.words.outcomes import Outcome, Released, WorkerLost
from pulse_django.queue.words.states import EndedBy, Status, run_ended
from pulse_django.queue.words.verb_results import Report, Settled
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import send, send_finished, worker_lost

from .guarded_connection import GuardedConnection
from .shared_leases import HeldLease

logger = SafeLogger("pulse_django.recovery")

TICK = 0.5  # seconds between two checks whether to stop
BEFORE_TRYING_AGAIN = 0.1  # seconds before locked rows are tried again
# Seconds after the death of a child. A claim may be committed after its sender died, and after the first look.
SECOND_LOOK = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LostChild:
    """A child that died, with its leases and progress."""

    holder_prefix: str
    held: Sequence[HeldLease]  # from the shared memory at the end
    progress: Mapping[Lease, str] = field(repr=False)  # not saved by a heartbeat yet
    reason: str
    asked_for: bool  # the keeper stopped it, so its runs do not count
    at: float
    stacks: str = field(default="", repr=False)  # of its handlers, if they were dumped before it was killed


# Reports of a child that cannot deliver them itself, and a callback for the answer.
RelayedReports = tuple[Sequence[Report], Callable[[Settled], object]]


class Recovery:
    """Settles the leases of children that are certainly dead, with the normal fence.

    A run that had begun counts as a lost worker, and as an attempt. Other jobs go back to the queue. The table is
    searched for further claims of the child: it may have died before it noted a claim.
    """

    def __init__(self, database: GuardedConnection, recovered: Callable[[], object] = lambda: None) -> None:
        """``recovered`` is called when jobs of a dead child are waiting again."""
        self.database = database
        self._recovered = recovered
        self._inbox: SimpleQueue[LostChild | RelayedReports | None] = SimpleQueue()
        self._open: LostChild | None = None
        self._again: list[tuple[float, LostChild]] = []  # children for a second look, with its time
        self._taken_over = self._done = 0

    @property
    def is_idle(self) -> bool:
        """Return whether all children are done."""
        return self._taken_over == self._done

    def recover(self, child: LostChild) -> None:
        """Add a dead child. One other thread calls it."""
        self._taken_over += 1
        self._inbox.put(child)

    def relay(self, reports: Sequence[Report], answer: Callable[[Settled], object]) -> None:
        """Add reports of a child that cannot reach the database. One other thread calls it."""
        self._inbox.put((reports, answer))

    def interrupt(self) -> None:
        """End the wait for dead children. One other thread calls it."""
        self._inbox.put(None)

    def run_once(self) -> float:
        """Recover a dead child or settle relayed reports, or wait for some. After a database error, recovery is
        retried.

        Relayed reports are not retried here: their child sends them again.
        """
        child = self._open = self._open or self._next()
        if child is None:
            return 0.0
        if time.monotonic() - child.at > conf.current().lease_ttl.total_seconds() * 2:
            logger.error("%s: its leases have expired; a watchdog will recover them", child.holder_prefix)
        elif self._settle(child):
            return BEFORE_TRYING_AGAIN
        elif time.monotonic() - child.at < SECOND_LOOK:
            self._again.append((child.at + SECOND_LOOK, child))
        self._open = None
        self._done += 1
        return 0.0

    def _next(self) -> LostChild | None:
        now = time.monotonic()
        if self._again and self._again[0][0] <= now:
            self._taken_over += 1
            return self._again.pop(0)[1]
        until_second_look = self._again[0][0] - now if self._again else TICK
        try:
            arrived = self._inbox.get(timeout=min(TICK, until_second_look))
        except Empty:
            return None
        if not isinstance(arrived, tuple):
            return arrived
        reports, answer = arrived
        answer(self.database.call(self.database.jobs.settle, reports, wait=False))
        return None

    def _settle(self, child: LostChild) -> bool:
        begun = {held.lease for held in child.held if held.begun}
        left: list[Job] = self.database.call(self.database.jobs.held_by, child.holder_prefix)
        reports = [self._report_on(job, child, begun) for job in left]
        if not reports:
            return False
        settled = self.database.call(self.database.jobs.settle, reports, wait=False)
        for job, report in zip(left, reports, strict=True):
            if (status := settled.accepted.get(report.lease)) is not None:
                self._tell(job, report, status)
        leases = tuple(settled.accepted)
        if leases:
            self._recovered()
        logger.warning("%d jobs recovered from a process %s", len(leases), child.reason)
        send(worker_lost, Job, name=child.holder_prefix, reason=child.reason, leases=leases, using=self.database.alias)
        return bool(settled.skipped)

    def _report_on(self, job: Job, child: LostChild, begun: set[Lease]) -> Report:
        lease = Lease(job.pk, str(job.locked_by), job.attempts)
        outcome: Outcome = Released(reason="the worker stopped" if lease in begun else "", has_begun=lease in begun)
        if lease in begun and not child.asked_for:
            outcome = WorkerLost(f"worker process {child.reason}", stack=child.stacks)
        settings = conf.current()
        decision = decide(outcome, job.budget, fleet=settings.backoff, max_lost_workers=settings.max_lost_workers)
        return Report(lease, outcome, decision, child.progress.get(lease))

    def _tell(self, job: Job, report: Report, status: Status) -> None:
        lease, reason = report.lease, getattr(report.decision, "reason", "")
        text, why = "job %d attempt %d: %s after a lost worker%s", f": {reason}" if reason else ""
        facts = {"job_id": lease.job_id, "attempt": lease.attempt, "holder": lease.holder}
        logger.warning(text, lease.job_id, lease.attempt, status, why, extra=facts)
        outcome = report.outcome.name
        ending = run_ended(job, lease, status=status, by=EndedBy.KEEPER, outcome=outcome, reason=reason)
        send_finished(Job, ending, using=self.database.alias)
