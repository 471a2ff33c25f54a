"""Run the queue in the test's own thread, with the real claim, the real handlers and the real settle."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from django.db import router

from pulse_django.announcing import announce
from pulse_django.identity import Identity
from pulse_django.leases import Claim
from pulse_django.models import Job
from pulse_django.outcomes import OutcomeName
from pulse_django.performing import Performed, perform
from pulse_django.registry import registry
from pulse_django.runs import Run
from pulse_django.states import Status
from pulse_django.transactions import is_in_callers_transaction

from .jobs import fresh, id_of

if TYPE_CHECKING:
    from .jobs import AnyJob

MOST_RUNS = 1_000


class DrainLimit(AssertionError):
    """The queue did not come to rest: something enqueues or retries itself for ever."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a drain."""

    job_id: int
    task: str
    attempt: int
    outcome: OutcomeName | None  # None: the handler completed the job itself, or had lost it
    status: Status  # of the job afterwards


def drain(*, queues: Collection[str] | None = None, most_runs: int = MOST_RUNS) -> list[Ran]:
    """Run every due job, and those that they enqueue, until nothing is due. Backoffs are not waited for."""
    registry.discover()
    worker = Identity("pulse-test")
    ran: list[Ran] = []
    while claims := Job.objects.claim(worker, lanes=Job.objects.lanes(queues)):
        if len(ran) >= most_runs:
            Job.objects.release([claim.lease for claim in claims])
            raise DrainLimit(f"after {most_runs} runs there was still work: {[one.task for one in ran[-5:]]} ran last")
        ran += [run_claim(claim) for claim in claims]
    return ran


def run_job(job: AnyJob) -> Ran:
    """Run this job, which must be due, and no other."""
    return run_claim(claim_job(job))


def claim_job(job: AnyJob) -> Claim:
    """Claim this job, which must be due, and no other."""
    registry.discover()
    claims = Job.objects.claim_these(Identity("pulse-test"), [id_of(job)])
    if not claims:
        state = fresh(job)
        raise AssertionError(f"{state} is {state.status} and due at {state.next_run_at}: it cannot be run now")
    return claims[0]


def run_claim(claim: Claim) -> Ran:
    """Run the handler of a claim and settle what it reports."""
    return reported(perform(Run(claim, beat=beat)))


def reported(performed: Performed) -> Ran:
    """Settle what a run reports, and tell whoever listens."""
    claim = performed.run.claim
    settled = Job.objects.settle([performed.report] if performed.report else [])
    if performed.afterwards is not None:
        Job.objects.keep_errors_after_completion({claim.lease: performed.afterwards})
    announce(performed, settled)
    if isinstance(performed.error, KeyboardInterrupt):
        raise performed.error  # whoever runs the tests wants to stop
    outcome = performed.report.outcome.name if performed.report else None
    return Ran(claim.job_id, claim.task, claim.attempt, outcome, _status_of(claim.job_id))


def _status_of(job_id: int) -> Status:
    """Of the row alone: its payloads may be what cannot be read."""
    return Status(Job.objects.values_list("status", flat=True).get(pk=job_id))


def beat(run: Run) -> None:
    """Stand in for the heartbeat that a worker sends in the background."""
    lease, sent_at = run.claim.lease, time.monotonic()
    if is_in_callers_transaction(router.db_for_write(Job)):
        return  # as in production, where the beat has a connection of its own, this is no trouble of the handler's
    progress = run.take_progress()
    answer = Job.objects.heartbeat([lease], {lease: progress} if progress else None)
    run.lost = lease in answer.lost
    run.cancelled = lease in answer.cancelled
    if lease in answer.alive:
        run.extended(sent_at)
    else:
        run.give_back(progress)
