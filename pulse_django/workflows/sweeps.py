"""The sweeps of watchdogs for workflows: free waiting jobs, hold paused ones, and find overlooked ones."""

from __future__ import annotations

from pulse_django import conf
from pulse_django.queue.capability import Capability, Internals, Satellite, StepDone, SweepStep, WorkerDatabase
from pulse_django.safe_logging import SafeLogger

from .batch_verbs import KEPT_RESULTS, Joining
from .resolve import ARE_UNRESOLVED, AT_END, IS_CANCELLED, IS_HOLDING, IS_NEEDED
from .resolving import Remaining, free, hold_paused, resolve
from .why import CONDITIONS, WhyOfWorkflows

logger = SafeLogger("pulse_django.watchdog")
OVERLOOKED = "were overlooked: their needs had ended without a note"


class HoldingPausedBatches(SweepStep):
    name = "paused batches"
    exists = "EXISTS (SELECT 1 FROM pulse_django_batch WHERE paused_at IS NOT NULL AND finished_at IS NULL)"

    def run(self, database: WorkerDatabase) -> StepDone:
        return StepDone(hold_paused(database.alias, call=database.call))


class Resolving(SweepStep):
    name = "unresolved"
    exists = ARE_UNRESOLVED

    def run(self, database: WorkerDatabase) -> StepDone:
        left = resolve(database.alias, call=database.call, with_timeouts=True)
        return StepDone(left is Remaining.MORE)  # locked rows are left to the next sweep


class NotingOverlooked(SweepStep):
    name = "overlooked"
    is_housekeeping = True

    def run(self, database: WorkerDatabase) -> StepDone:
        jobs, days = database.jobs, conf.current().retention_of_days
        overlooked = database.call(jobs.note_overlooked)
        if days:
            database.call(jobs.forget_batches, older_than=days)
        if overlooked:
            logger.warning("%d jobs or batches %s", overlooked, OVERLOOKED)
        return StepDone(overlooked > 0)


CAPABILITY = Capability(
    name="workflows",
    exists="EXISTS (SELECT 1 FROM pulse_django_batch) OR EXISTS (SELECT 1 FROM pulse_django_dependency)"
    " OR EXISTS (SELECT 1 FROM pulse_django_step) OR EXISTS (SELECT 1 FROM pulse_django_event)",
    carries={column: column for column in ("batch_id", "node", "awaited")},
    at_end=AT_END,
    why=WhyOfWorkflows(),
    conditions=CONDITIONS,
    satellites=(
        Satellite(table="pulse_django_dependency", is_walked=True),
        Satellite(table="pulse_django_step", is_walked=True),
    ),
    sweeps=(HoldingPausedBatches(), Resolving(), NotingOverlooked()),  # the others end jobs before it resolves
    internals=Internals(
        parts=(Joining(),),
        when_over=free,
        is_needed=IS_NEEDED,
        is_holding=IS_HOLDING,
        refuses_retry=IS_CANCELLED,
        keeps=KEPT_RESULTS,
    ),
)
