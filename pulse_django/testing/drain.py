"""Run the queue in the thread of the test, with the real claim, the real handlers and the real settle."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal

from django.db import router

from pulse_django import conf
from pulse_django.encryption.values import shown
from pulse_django.models import Job, Schedule
from pulse_django.queue.database.transactions import is_in_callers_transaction, run_joined
from pulse_django.queue.declarations import Declarer, scope_of_code
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Claim, Identity
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.run.events import announce
from pulse_django.run.execute import perform
from pulse_django.run.registry import chunk_of, keys_of, registry
from pulse_django.run.run import LOSSES_UNTIL_ALONE, ChunkRun, Performed, Run, running
from pulse_django.schedules.declarations import declared_in
from pulse_django.schedules.tick_rules import TickOutcome
from pulse_django.schedules.ticking import tick_due
from pulse_django.schedules.verbs import clock
from pulse_django.shards.placement import Located, alias_of_jobs, alias_of_run, locate, routers_alias
from pulse_django.workflows.resolving import resolve

from .databases import committing

if TYPE_CHECKING:
    from pulse_django.managers import JobManager


MOST_RUNS = 1_000
_FAILED = (OutcomeName.FAILED, OutcomeName.TIMED_OUT)

Failures = Literal["raise", "keep"]


class DrainLimit(AssertionError):
    """The queue did not become empty: a job enqueues or retries itself for ever."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One run of a drain."""

    job_id: int  # The job.
    task: str  # The name of its task.
    attempt: int  # The number of the run.
    outcome: OutcomeName | None  # The outcome. None: the handler completed the job itself, or had lost its lease.
    status: Status  # The status of the job afterwards.
    database: str  # The alias of the job's database.
    error: BaseException | None = field(default=None, repr=False)  # The exception of the handler.


def drain(
    *,
    queues: Collection[str] | None = None,
    most_runs: int = MOST_RUNS,
    using: str | None = None,
    failures: Failures = "raise",
) -> list[Ran]:
    """Run every due job of one database, and those that they enqueue there, until nothing is due.

    Exceptions of a handler are raised after its job is settled. With ``failures="keep"`` they are kept in the runs.
    Callbacks of ``on_commit`` that a ``TestCase`` would never call are called when their handler has ended. Due jobs of
    a task with chunks make chunks. Backoffs are not waited for. ``using`` names another database than that of the
    router.
    """
    _check(failures)
    registry.discover()
    worker, alias = Identity("pulse-test"), alias_of_jobs(using)
    jobs = Job.objects.db_manager(alias)
    ran: list[Ran] = []

    def due() -> list[Claim]:
        resolve(alias, with_timeouts=True)
        jobs.promote()
        return list(jobs.claim(worker, lanes=jobs.lanes(queues)))

    while claims := due():
        if len(ran) >= most_runs:
            jobs.release([claim.lease for claim in claims])
            raise DrainLimit(f"after {most_runs} runs there was still work: {[one.task for one in ran[-5:]]} ran last")
        new = _ran_with_its_chunk(Run(claims[0], beat=beat, alias=alias), jobs, worker)
        _raise_failures(new, failures)
        ran += new
    return ran


def _ran_with_its_chunk(run: Run, jobs: JobManager, worker: Identity) -> list[Ran]:
    """Run a job, and if its task has chunks also the other due jobs of its queue that a worker would put into one."""
    claim = run.claim
    task = registry.get(claim.task)
    most = chunk_of(task) if task is not None else None
    if task is None or most is None or claim.losses >= LOSSES_UNTIL_ALONE:
        return [_ran(run)]
    due = jobs.due().startable().filter(task__in=keys_of(task), queue=claim.queue, losses__lt=LOSSES_UNTIL_ALONE)
    others = list(due.order_by("-priority", "next_run_at", "id").values_list("pk", flat=True)[: most - 1])
    claims = jobs.claim_these(worker, others) if others else []
    chunk = ChunkRun([run, *(Run(other, beat=beat, alias=run.alias) for other in claims)])
    with committing():
        members = perform(chunk).members
    return [reported(member) for member in members]


def run_job(job: AnyJob, *, failures: Failures = "raise") -> Ran:
    """Run only this job, which must be due. Failures and callbacks are handled as in ``drain``."""
    _check(failures)
    ran = _ran(claimed(job))
    _raise_failures([ran], failures)
    return ran


def _check(failures: str) -> None:
    if failures not in ("raise", "keep"):
        raise ValueError(f'failures: {failures!r} is neither "raise" nor "keep"')


def _raise_failures(ran: Sequence[Ran], failures: Failures) -> None:
    """Raise the first failure. A requested end, such as a snooze or a cancellation, is not a failure."""
    for one in ran:
        if failures == "raise" and (one.error is not None or one.outcome in _FAILED):
            raised = one.error or AssertionError(Job.objects.using(one.database).get(pk=one.job_id).last_error)
            raised.add_note(f'Job {one.job_id} of {one.task}, attempt {one.attempt}. failures="keep" returns it.')
            raise raised


def claimed(job: AnyJob, holder: str = "pulse-test") -> Run:
    """Claim only this job, which must be due."""
    registry.discover()
    place = place_of(job)
    claims = Job.objects.db_manager(place.alias).claim_these(Identity(holder), [place.id])
    if not claims:
        state = fresh(job)
        raise AssertionError(f"{state} is {state.status} and due at {state.next_run_at}: it cannot be run now")
    return Run(claims[0], beat=beat, alias=place.alias)


def _ran(run: Run) -> Ran:
    """Run the handler of a claim and settle what it reports."""
    return reported(performed(run))


def performed(run: Run) -> Performed:
    """Call the handler, and then the ``on_commit`` callbacks, which the test's transactions would not call."""
    with running(run), committing():  # jobs that the callbacks enqueue are children of this job
        return perform(run)


def reported(performed: Performed) -> Ran:
    """Settle what a run reports, and send the signals."""
    claim, alias = performed.run.claim, alias_of_run(performed.run)
    jobs = Job.objects.db_manager(alias)
    settled = jobs.settle([performed.report] if performed.report else [])
    if performed.afterwards is not None:
        jobs.keep_errors_after_completion({claim.lease: performed.afterwards})
    announce(performed, settled)
    if isinstance(performed.error, KeyboardInterrupt):
        raise performed.error  # the user wants to stop the tests
    outcome = performed.report.outcome.name if performed.report else None
    has_failed = outcome in _FAILED or performed.afterwards is not None
    error = performed.error if has_failed else None
    # Read only the status of the row: its payloads may be unreadable.
    status = Status(Job.objects.using(alias).values_list("status", flat=True).get(pk=claim.job_id))
    return Ran(claim.job_id, claim.task, claim.attempt, outcome, status, alias, error)


def beat(run: Run) -> None:
    """Stand in for the heartbeat that a worker sends in the background."""
    lease, alias, sent_at = run.claim.lease, alias_of_run(run), time.monotonic()
    if is_in_callers_transaction(alias):
        return  # as in production, where heartbeats have their own connection, this does not disturb the handler
    progress = run.take_progress()
    answer = Job.objects.db_manager(alias).heartbeat([lease], {lease: progress} if progress else None)
    run.lost = lease in answer.lost
    run.cancelled = lease in answer.cancelled
    if lease in answer.alive:
        run.extended(sent_at)
    else:
        run.give_back(progress)


# Find the job of a test: by the job itself, a task result, or an id.


if TYPE_CHECKING:
    from pulse_django.run.registry import TaskResult

    AnyJob = Job | TaskResult | Located | int | str


def place_of(job: AnyJob) -> Located:
    """Return the id of a job and its database."""
    if isinstance(job, Located):
        return job
    if isinstance(job, Job):  # a job that a router read from a replica is in the database for writes
        read_from = job._state.db
        return locate(job.pk, routers_alias() if read_from in (None, router.db_for_read(Job)) else read_from)
    return locate(job if isinstance(job, int | str) else job.id)


def fresh(job: AnyJob) -> Job:
    """Return the present row of the job."""
    place = place_of(job)
    found: Job = Job.objects.using(place.alias).get(pk=place.id)
    return found


# Arguments in the messages of failed tests, without masked values, because such messages are logged, too.


def arguments_of(job: Job | NewJob) -> str:
    seen = shown(job.task, job.args, job.kwargs, job.sensitive)
    return "(its task is unknown here)" if seen is None else f"args={seen[0]} kwargs={seen[1]}"


def is_shown_in_full(job: Job | NewJob) -> bool:
    """Say whether jobs that look alike have the same arguments."""
    return shown(job.task, job.args, job.kwargs, job.sensitive) == (list(job.args), dict(job.kwargs))


# Move the times of a job, as if time had passed. The server's clock does not change.


_MOVE = """
WITH meant AS MATERIALIZED (
    SELECT id FROM pulse_django_job WHERE id = %s AND {which} FOR NO KEY UPDATE
),
moved AS MATERIALIZED (
    SELECT id, {instant} AS {column} FROM meant
),
written AS (
    UPDATE pulse_django_job AS job SET {column} = moved.{column}
    FROM moved
    WHERE job.id = moved.id AND {which}
    RETURNING job.id
)
SELECT id FROM written
"""
_EXPIRE = _MOVE.format(
    column="lease_until", instant="clock_timestamp() - interval '1 microsecond'", which="locked_by IS NOT NULL"
)
_JUMP = _MOVE.format(
    column="next_run_at", instant="clock_timestamp()", which="finished_at IS NULL AND locked_by IS NULL"
)


def expire_lease(job: AnyJob) -> None:
    """Let the lease of a running job expire, so that the next reap ends its run."""
    _move(job, _EXPIRE, "it has no lease")


def jump_to_next_run(job: AnyJob) -> None:
    """Make a waiting job due now."""
    _move(job, _JUMP, "it is not waiting")


def _move(job: AnyJob, statement: str, why_not: str) -> None:
    place = place_of(job)
    if not run_joined(place.alias, statement, [place.id]):
        raise AssertionError(f"{fresh(job)} is {fresh(job).status}: {why_not}")


# Let time pass for schedules: fire the ticks that are due until a given time.


MOST_TICKS = 10_000


@dataclass(frozen=True, slots=True)
class Fired:
    """One tick of ``run_schedules``."""

    schedule: str  # The name of the schedule.
    at: datetime  # The time of the tick.
    outcome: TickOutcome  # Its outcome.
    note: str  # Why, if it made no job.


def run_schedules(
    *,
    until: datetime | Seconds,
    names: Collection[str] = (),
    run_jobs: bool = True,
    using: str | None = None,
    failures: Failures = "raise",
) -> list[Fired]:
    """Fire every tick until this time, or for this duration from now, and return their outcomes, in order.

    Nothing waits: each tick is decided as if its time were now. The schedules of the code are declared first.
    ``names`` are those that may fire; the others stay as they are. The jobs of each tick run before the next tick is
    decided, unless ``run_jobs`` is False. ``failures`` is that of ``drain``.
    """
    alias = alias_of_jobs(using)
    schedules, now = Schedule.objects.db_manager(alias), clock(alias)
    declarer = Declarer(scope_of_code(), "tests", now)
    schedules.declare(declarer, declared_in(alias), silence=conf.current().worker_silence)
    until = as_timedelta(until)
    end = now + until if isinstance(until, timedelta) else until
    due = schedules.using(alias).filter(next_at__lte=end, gone_at=None).order_by("next_at", "id")
    fired: list[Fired] = []
    while (one := (due.filter(name__in=names) if names else due).first()) is not None and one.next_at is not None:
        if len(fired) >= MOST_TICKS:
            raise AssertionError(f"{len(fired)} ticks fired, and {one.name} is due again at {one.next_at}: until what?")
        ticked = tick_due(alias, only=one, until=one.next_at)
        fired += [Fired(row.name, tick.at, tick.outcome, tick.note) for row, tick in ticked.ticks]
        if not ticked.ticks:
            raise AssertionError(f"{one.name} is due at {one.next_at}, and was not decided")
        if run_jobs:
            for job_id in ticked.job_ids:
                jump_to_next_run(Job.objects.using(alias).get(pk=job_id))
            drain(using=alias, failures=failures)
    return fired
