"""Move waiting jobs to another shard, with their attempts and keys. An interrupted move can be continued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.db.models import BooleanField, Exists, OuterRef, Q
from django.db.models.expressions import RawSQL

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.prune import satellites
from pulse_django.queue.words.states import TERMINAL
from pulse_django.run.notify import wake_workers

from .ids import TOKENS, position_of, raise_sequence
from .placement import shards
from .transfer import OnItsWay, arrive, deadline, depart, departures, forget_arrivals, forget_departures, go_back

MOST_DEPARTURES = 1_000
_HAS_NONE = 'NOT EXISTS (SELECT 1 FROM {table} AS other WHERE other.job_id = "pulse_django_job".id)'


@dataclass(frozen=True, slots=True, kw_only=True)
class Moved:
    """The result of a move: ids of jobs."""

    moved: tuple[int, ...] = ()
    went_back: tuple[int, ...] = ()  # another job in the new shard holds their key

    def __add__(self, other: Moved) -> Moved:
        return Moved(moved=self.moved + other.moved, went_back=self.went_back + other.went_back)


def movable(jobs: JobQuerySet[Job]) -> JobQuerySet[Job]:
    """Return jobs that can leave their shard: they only wait to be due, and nothing in this shard depends on them.

    Members of batches, children of an unfinished job, jobs of a limit, and jobs with rows of a capability that do not
    move stay until they have run.
    """
    alias = jobs.db
    stay = [one for one in satellites() if not one.rows]
    parent = Job.objects.using(alias).filter(pk=OuterRef("parent_id")).exclude(status__in=list(TERMINAL))
    return jobs.claimable().filter(
        Q(lane_key="") | Q(lane_key__gte=":", lane_key__lt=";"),  # no lane key, or a share
        ~Q(queue__in=list(conf.current().queue_limits)),
        ~Exists(parent),
        *(RawSQL(_HAS_NONE.format(table=one.table), (), output_field=BooleanField()) for one in stay),  # noqa: S611
        batch=None,
        awaited=False,
    )


def move(wanted: JobQuerySet[Job], to: str) -> Moved:
    """Move these jobs to another shard. Leave out jobs that cannot be moved or are locked now."""
    alias = wanted.db
    left = depart(Job.objects.db_manager(alias), movable(wanted), shards()[to])
    return deliver(alias, departures(alias, job_ids=left)) if left else Moved()


def finish(alias: str) -> Moved:
    """Deliver jobs that have left a shard and not arrived, because a process ended in between."""
    done = Moved()
    while sent := departures(alias, most=MOST_DEPARTURES):
        step = deliver(alias, sent)
        done += step
        if step == Moved():  # the rest can neither arrive nor go back
            break
    return done


def deliver(alias: str, sent: Sequence[OnItsWay]) -> Moved:
    """Deliver jobs that have left this shard to their new shards."""
    done = Moved()
    names = {number: name for name, number in shards().items()}
    for number in sorted({one.to_shard for one in sent}):
        if number in names:
            done += _deliver_to(alias, names[number], [one for one in sent if one.to_shard == number])
    return done


def _deliver_to(alias: str, to: str, sent: Sequence[OnItsWay]) -> Moved:
    # Make the tokens of the new shard larger than all tokens that these jobs have had.
    raise_sequence(to, TOKENS, position_of(alias, TOKENS))
    until = deadline(to)
    sent = departures(alias, job_ids=[one.job_id for one in sent])  # departures that are gone by now have arrived
    queues, arrived, refused = arrive(to, sent, until)
    if refused:
        go_back(alias, refused)
    if arrived:
        forget_departures(alias, arrived)
    forget_arrivals(to, [*arrived, *refused])
    if queues:
        wake_workers(to, sorted(queues))
    jobs = {one.departure_id: one.job_id for one in sent}
    return Moved(moved=tuple(jobs[one] for one in arrived), went_back=tuple(jobs[one] for one in refused))
