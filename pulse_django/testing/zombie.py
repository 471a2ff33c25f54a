"""A worker that holds a job, loses its lease, and reports too late."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.words.decisions import Complete, decide
from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.masks import RESULT
from pulse_django.queue.words.outcomes import returned
from pulse_django.queue.words.verb_results import Report, Settled
from pulse_django.run.codec import codec

from .drain import claimed, expire_lease, fresh, jump_to_next_run, place_of

if TYPE_CHECKING:
    from .drain import AnyJob


class Zombie:
    """Claims a due job in the name of another worker, which loses its lease and comes back.

    It holds the job. After ``freeze()`` another worker may do the work, as with ``run_job(job)``, and ``report()`` is
    too late: it changes nothing.
    """

    def __init__(self, job: AnyJob) -> None:
        self._place = place_of(job)
        self._jobs = Job.objects.db_manager(self._place.alias)
        self.run = claimed(self._place, "zombie")  # for a handler's context
        self.run.beat = None  # it is frozen
        self.run.decrypt()
        self.claim: Claim = self.run.claim

    def freeze(self) -> None:
        """Let the lease expire, the job be reaped, and its backoff end."""
        expire_lease(self._place)
        self._jobs.reap()
        if not fresh(self._place).finished_at:
            jump_to_next_run(self._place)

    def report(self, result: Any = None) -> Settled:
        """Report success, as the frozen handler would. The result names the leases that are ``lost``."""
        outcome = returned(result, limit=conf.current().max_payload_bytes)
        decision = decide(outcome, self.claim.budget)
        if isinstance(decision, Complete):
            decision = Complete(decision.result and codec().stored(self.claim, decision.result, RESULT))
        settled: Settled = self._jobs.settle([Report(self.claim.lease, outcome, decision)])
        return settled
