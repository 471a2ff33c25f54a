"""A worker that holds a job, loses it, and comes back with a report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.answers import Report, Settled
from pulse_django.decisions import decide
from pulse_django.identity import Identity
from pulse_django.leases import Claim
from pulse_django.models import Job
from pulse_django.outcomes import returned
from pulse_django.runs import Run

from .clock import expire_lease, jump_to_next_run
from .jobs import fresh, id_of

if TYPE_CHECKING:
    from .jobs import AnyJob


class Zombie:
    """Claims a due job in the name of another worker.

    zombie = Zombie(job)        # it holds the job
    zombie.freeze()             # its lease runs out, and the job is due again
    run_job(job)                # somebody else does the work
    zombie.report("late")       # ... and the late report changes nothing
    """

    def __init__(self, job: AnyJob) -> None:
        claims = Job.objects.claim_these(Identity("zombie"), [id_of(job)])
        if not claims:
            raise AssertionError(f"{fresh(job)} is {fresh(job).status}: it cannot be claimed now")
        self.claim: Claim = claims[0]
        self.run = Run(self.claim)  # for a handler's context

    def freeze(self) -> None:
        """Let the lease run out, the job be reaped and its backoff be over."""
        expire_lease(self.claim.job_id)
        Job.objects.reap()
        if not fresh(self.claim.job_id).finished_at:
            jump_to_next_run(self.claim.job_id)

    def report(self, result: Any = None) -> Settled:
        """Report success, as the handler that was frozen would."""
        outcome = returned(result, limit=conf.current().max_payload_bytes)
        return Job.objects.settle([Report(self.claim.lease, outcome, decide(outcome, self.claim.budget))])
