"""The sweeps of watchdogs for workflows: free waiting jobs, hold paused ones, and find overlooked ones."""

from __future__ import annotations

from pulse_django import conf
from pulse_django.queue.capability import Capability, Satellite, StepDone, SweepStep, WorkerDatabase
from pulse_django.safe_logging import SafeLogger

from .batch_verbs import AROUND_INSERT, KEPT_RESULTS
from .resolve import ARE_UNRESOLVED, AT_END, IS_CANCELLED, IS_HOLDING, IS_NEEDED
from .resolving import Remaining, free, hold_paused, resolve
from .why import CONDITIONS, WHY

logger = SafeLogger("pulse_django.watchdog")
OVERLOOKED = "were overlooked: their needs had ended without a note"


def _resolve(database: WorkerDatabase) -> StepDone:
    left = resolve(database.alias, call=database.call, with_timeouts=True)
    return StepDone(left is Remaining.MORE)  # locked rows are left to the next sweep


def _keep_house(database: WorkerDatabase) -> StepDone:
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
    around_insert=AROUND_INSERT,
    carries={column: column for column in ("batch_id", "node", "awaited")},
    at_end=AT_END,
    when_over=free,
    is_needed=IS_NEEDED,
    is_holding=IS_HOLDING,
    refuses_retry=IS_CANCELLED,
    why=WHY,
    keeps=KEPT_RESULTS,
    conditions=CONDITIONS,
    satellites=(
        Satellite(table="pulse_django_dependency", is_walked=True),
        Satellite(table="pulse_django_step", is_walked=True),
    ),
    sweeps=(
        SweepStep(
            name="paused batches",
            run=lambda database: StepDone(hold_paused(database.alias, call=database.call)),
            exists="EXISTS (SELECT 1 FROM pulse_django_batch WHERE paused_at IS NOT NULL AND finished_at IS NULL)",
        ),
        SweepStep(name="unresolved", run=_resolve, exists=ARE_UNRESOLVED),  # the last one, because the others end jobs
        SweepStep(name="overlooked", run=_keep_house, is_housekeeping=True),
    ),
)
