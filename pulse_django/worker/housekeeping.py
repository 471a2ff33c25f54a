"""The tasks of a watchdog that are not urgent: once a minute it deletes old rows and ends pauses that are over."""

from __future__ import annotations

from datetime import timedelta

from django.db import DatabaseError

from pulse_django import conf
from pulse_django.fleet import unknown_tasks
from pulse_django.models import Limiter, PausedKey, Queue, Worker
from pulse_django.protocol.prune import PRUNE_LIMIT
from pulse_django.safe_logging import SafeLogger
from pulse_django.store.database_errors import DatabaseFault, fault_of
from pulse_django.words.payloads import one_line
from pulse_django.words.verb_results import Reaped

from .guarded_connection import GuardedConnection
from .sweeps import Swept

logger = SafeLogger("pulse_django.watchdog")

OUTAGES = (DatabaseFault.CUT_OFF, DatabaseFault.FULL)
KEEP_WORKERS = timedelta(days=7)
# Shorter, and a loss during holidays is deleted before it is read; longer, and fleets whose hosts are replaced often
# keep rows of hosts that no longer exist.
KEEP_LOST = timedelta(days=30)


def keep_house(
    database: GuardedConnection, reaped: list[Reaped], *, has_limits: bool = False, has_workflows: bool = False
) -> Swept:
    """One bounded statement for each kind of thing; what is left over is for the next sweep."""
    settings, alias = conf.current(), database.alias
    resumed = database.call(Queue.objects.db_manager(alias).resume_ended)
    silence = settings.worker_silence
    lost = database.call(Worker.objects.db_manager(alias).mark_lost, silence)
    database.call(Worker.objects.db_manager(alias).forget, KEEP_WORKERS, KEEP_LOST)
    if has_limits:
        database.call(Limiter.objects.db_manager(alias).forget_full_buckets)
    database.call(PausedKey.objects.db_manager(alias).forget_ended)
    given_up = database.call(unknown_tasks.give_up, alias)
    _see_to_days(database, days := settings.retention_of_days)
    pruned = {}
    for status, kept in settings.retention.items():
        if kept:
            in_days = kept != days
            pruned[status] = database.call(database.jobs.prune, status, older_than=kept, in_days=in_days)
    overlooked = 0
    if has_workflows:
        overlooked = database.call(database.jobs.note_overlooked)
        database.call(database.jobs.forget_orphans)
        if days:
            database.call(database.jobs.forget_batches, older_than=days)
    if overlooked:
        logger.warning("%d jobs or batches waited in vain: what they need had ended without a note", overlooked)
    for queue in resumed:
        logger.info("The pause of queue %r has ended", queue)
    for worker in lost:
        logger.warning("Worker %s sent no heartbeat for %s; marked as lost", one_line(worker), silence)
    return Swept(
        reaped=reaped,
        resumed=resumed,
        lost=lost,
        given_up=given_up,
        pruned=pruned,
        has_more=PRUNE_LIMIT in pruned.values() or len(given_up) == unknown_tasks.MOST_AT_ONCE or overlooked > 0,
    )


def _see_to_days(database: GuardedConnection, kept: timedelta) -> None:
    """Make and drop partitions. What is wrong with one of them must not keep the rest from being done."""
    jobs = database.jobs
    try:
        database.call(jobs.make_days)
        if kept:
            for day in jobs.drop_days(older_than=kept, call=database.call):
                logger.info("Deleted the jobs that were completed or cancelled on %s", day)
    except DatabaseError as error:
        if fault_of(error) in OUTAGES:
            raise
        logger.exception("Partitions could not be made or dropped")
