"""The watchdog: it ends runs whose worker was lost, whose deadline passed or whose progress stopped.

Any number of watchdogs may run, in workers and alone. They share the work without knowing of each other.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar

from django.db import DatabaseError

from pulse_django import conf
from pulse_django.models import Duty, Job, Worker
from pulse_django.queue.capability import installed
from pulse_django.queue.database.database_errors import DatabaseFault, fault_of, sqlstate_of
from pulse_django.queue.database.duties import SET_ASIDE, TakenDuties
from pulse_django.queue.database.job_queries import ServerClock
from pulse_django.queue.prune import PRUNE_LIMIT
from pulse_django.queue.reap import REAP_LIMIT
from pulse_django.queue.set_aside import MOST_BATCHES, SET_ASIDE_LIMIT, in_batches
from pulse_django.queue.words.payloads import error_in_one_line, one_line
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Reaped
from pulse_django.run.notify import wake_workers
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import job_reaped, send, send_finished

from .guarded_connection import LONGEST_SWEEP, SWEEPS_SLOWED_BY, GuardedConnection, slowed
from .heartbeat import Heartbeat

T = TypeVar("T")
logger = SafeLogger("pulse_django.watchdog")

STEP = 1.0  # seconds by which the server's clock may be set back unnoticed
# A lease that expired before so many sweep intervals was skipped by the last sweep.
SWEEPS_TO_NOTICE = 1.2
# Seconds for a holder to extend a lease after the lock on its row is gone: time for a few tries.
PATIENCE_WITH_HOLDERS = 0.4
MOST_OVERLOOKED = 5_000  # in one sweep
JITTER = 0.2  # the share of the interval by which a sweep may come early
OUTAGES = (DatabaseFault.CUT_OFF, DatabaseFault.FULL)
KEEP_WORKERS = timedelta(days=7)
# If shorter, a loss during holidays is deleted before anyone sees it. If longer, fleets whose hosts are replaced often
# keep rows of hosts that no longer exist.
KEEP_LOST = timedelta(days=30)
BETWEEN_HOUSEKEEPINGS = 60.0  # seconds
# The duties, and the share of an interval after which they are due, which is less than the shortest pause.
SWEEP, HOUSEKEEPING = "sweep", "housekeeping"
DUE_AFTER = 0.75
NOTHING_FOUND = TakenDuties(ServerClock(0.0, 0.0), frozenset(), frozenset(), frozenset())


class Watchdog:
    def __init__(
        self,
        database: GuardedConnection,
        interval: float | None = None,
        beats: Heartbeat | None = None,
        ended: Callable[[], object] = lambda: None,
    ) -> None:
        """``ended`` is called after runs were ended, because their jobs may wait again."""
        self.database = database
        self._ended = ended
        self.interval = interval or conf.current().watchdog_interval.total_seconds()
        self._outages = Outages(beats)
        self.found = NOTHING_FOUND  # from its last query
        self._clock: ServerClock | None = None  # at the end of the last sweep
        self._steps: list[timedelta | None] = []  # by which the server's clock was set back; None: unknown
        self._kept_house_at = float("-inf")
        self._duties = {SWEEP, HOUSEKEEPING}  # due now: at the start, all of them
        self._is_blind = False  # it cannot read the duties, which it has logged
        self._taken: frozenset[str] = frozenset()  # taken duties that are not marked as done yet

    def pause_after(self, swept: Swept | None, fleet_size: int = 1) -> float:
        """Return the pause: none if the sweep left work, otherwise a random part of the interval."""
        if swept is not None and swept.has_more:
            return 0.0
        others = fleet_size if swept is None else 0  # another watchdog sweeps
        longest = LONGEST_SWEEP * conf.current().lease_ttl.total_seconds()
        return slowed(self.interval, others, SWEEPS_SLOWED_BY, longest) * random.uniform(1 - JITTER, 1.0)  # noqa: S311 - no secret

    def take_turn(self) -> Swept | None:
        """Sweep, unless another watchdog did lately, or this one was disconnected and would end no runs now."""
        begin, ttl = time.monotonic(), conf.current().lease_ttl.total_seconds()
        duties = Duty.objects.db_manager(self.database.alias)
        every = {SWEEP: DUE_AFTER * self.interval, HOUSEKEEPING: DUE_AFTER * BETWEEN_HOUSEKEEPINGS}
        every = every if self._outages.trusts_leases(begin, ttl) else {}
        try:
            found: TakenDuties = self._asked(partial(self.database.call, duties.take, every))
        except DatabaseError as error:
            if fault_of(error) not in (DatabaseFault.CHANGING, DatabaseFault.BUSY):
                raise
            if not self._is_blind:
                logger.warning("Sweeping without knowing when others last swept: %s", error_in_one_line(error))
            self._is_blind = True
            return self.sweep(housekeeping=begin - self._kept_house_at >= BETWEEN_HOUSEKEEPINGS)
        self._is_blind = False
        self._look_at_server(found.clock)
        overdue, self.found = found.overdue & self.found.overdue, found
        if SWEEP in found.taken & found.unfinished - self._duties:
            self._outages.is_on = True  # what stopped the other watchdog may have blocked heartbeats, too
        if overdue:
            logger.warning("No watchdog has swept for a long time. Check whether a row of pulse_django_duty is locked.")
        self._duties |= found.taken | overdue | ({SWEEP} if self._outages.is_on else set())
        if not self._duties:
            if SWEEP in every and SWEEP not in found.unfinished:
                self._outages.answered(time.monotonic())  # another one swept lately, so writes succeed
            return None
        self._taken = frozenset(self._duties - overdue)
        swept = self._swept(begin, HOUSEKEEPING in self._duties, found.with_work)
        self._note_done(HOUSEKEEPING)
        self._duties = {SWEEP, HOUSEKEEPING} if swept.has_more else set()
        return swept

    def _note_done(self, duty: str) -> None:
        if duty in self._taken:
            self.database.call(Duty.objects.db_manager(self.database.alias).done, [duty])
            self._taken -= {duty}

    def sweep(self, *, housekeeping: bool = True) -> Swept:
        """End runs that are over, and do the less urgent work."""
        begin = time.monotonic()
        self._look_at_server(self._asked(lambda: self.database.call(self.database.jobs.server_clock)))
        return self._swept(begin, housekeeping)  # it has not checked which steps have work

    def _swept(self, begin: float, housekeeping: bool, with_work: Collection[str] | None = None) -> Swept:
        try:
            swept = Swept(reaped=self._reap_if_leases_can_be_trusted())
            if with_work is None or SET_ASIDE in with_work:
                swept.has_more = see_to_shut_tasks(self.database)
            self._run_steps(swept, with_work, are_housekeeping=False)
            self._note_done(SWEEP)  # before housekeeping, which may fail
            if housekeeping:
                self._keep_house(swept)
                self._run_steps(swept, with_work, are_housekeeping=True)
                self._kept_house_at = begin
            swept.took = time.monotonic() - begin
            return swept
        finally:  # the duration of a sweep does not count as sleep
            if self._clock is not None:
                self._clock = self._clock._replace(up_for=self._clock.up_for + time.monotonic() - begin)

    def _run_steps(self, swept: Swept, with_work: Collection[str] | None, *, are_housekeeping: bool) -> None:
        """Run the steps of capabilities that have work, or all steps if that is not known."""
        for capability in installed():
            for step in capability.sweeps:
                swept.said = dict(step.says) | swept.said
                asked = next((one.name for one in (step, capability) if one.exists), None)
                has_work = with_work is None or asked is None or asked in with_work
                if step.is_housekeeping is are_housekeeping and has_work:
                    done = step.run(self.database)
                    swept.has_more |= done.has_more
                    swept.said |= done.said

    def _reap_if_leases_can_be_trusted(self) -> list[Reaped]:
        outages, ttl = self._outages, conf.current().lease_ttl.total_seconds()
        try:
            if outages.is_on:
                self.database.call(self.database.jobs.touch_expired)
                self._wait(outages.over(time.monotonic(), ttl))
            reaped = self._reap() if outages.trusts_leases(time.monotonic(), ttl) else []
        except Exception as error:
            outages.failed(error)
            raise
        outages.answered(time.monotonic())
        return reaped

    def _reap(self) -> list[Reaped]:
        lately = timedelta(seconds=SWEEPS_TO_NOTICE * self.interval)
        ended: list[Reaped] = []
        while True:
            reaped = self._announced(self.database.jobs.reap, within=lately)
            ended += reaped
            if len(reaped) < REAP_LIMIT:
                return ended + self._reap_overlooked(lately)

    def _reap_overlooked(self, lately: timedelta) -> list[Reaped]:
        """End runs whose lease expired before the last sweep, which skipped them.

        Probably another transaction had locked the row, so that heartbeats were skipped, too. A live holder retries
        several times a second, so its heartbeat comes first.
        """
        overlooked: list[int] = self.database.call(self.database.jobs.overlooked, lately, limit=MOST_OVERLOOKED)
        if not overlooked:
            return []
        time.sleep(PATIENCE_WITH_HOLDERS)
        ended: list[Reaped] = []
        for start in range(0, len(overlooked), REAP_LIMIT):
            some = overlooked[start : start + REAP_LIMIT]
            ended += self._announced(self.database.jobs.reap_these, some)
        return ended

    def _announced(self, verb: Callable[..., list[Reaped]], *args: Any, **kwargs: Any) -> list[Reaped]:
        """Call a verb that ends runs, and announce these, even if it raises an error after it ended some."""
        reaped: list[Reaped] = []
        try:
            reaped = self.database.call(verb, *args, **kwargs, ended=reaped)
            return reaped
        finally:
            if reaped:
                self._ended()
            for one in reaped:
                lease = one.lease
                facts = {"job_id": lease.job_id, "attempt": lease.attempt, "holder": lease.holder}
                logger.warning(
                    "job %d attempt %d: %s, held by %s; now %s",
                    *(lease.job_id, lease.attempt, one.outcome, one_line(lease.holder), one.status),
                    extra=facts,
                )
                send(job_reaped, Job, reaped=one, using=self.database.alias)
                send_finished(Job, one.ending, using=self.database.alias)

    def _keep_house(self, swept: Swept) -> None:
        """Do work that is not urgent: delete old rows.

        Each kind of rows gets one bounded statement. The rest is left to the next sweep.
        """
        settings, alias, jobs, call = conf.current(), self.database.alias, self.database.jobs, self.database.call
        workers, silence, days = Worker.objects.db_manager(alias), settings.worker_silence, settings.retention_of_days
        swept.lost = call(workers.mark_lost, silence)
        call(workers.forget, KEEP_WORKERS, KEEP_LOST)
        self._see_to_days(days)
        for status, kept in settings.retention.items():
            if kept:
                swept.pruned[status] = call(jobs.prune, status, older_than=kept, in_days=kept != days)
        call(jobs.forget_orphans)
        for worker in swept.lost:
            logger.warning("Worker %s sent no heartbeat for %s; marked as lost", one_line(worker), silence)
        swept.has_more |= PRUNE_LIMIT in swept.pruned.values()

    def _see_to_days(self, kept: timedelta) -> None:
        """Make and drop partitions. An error must not stop the rest of the housekeeping."""
        jobs = self.database.jobs
        try:
            self.database.call(jobs.make_days)
            if kept:
                for day in jobs.drop_days(older_than=kept, call=self.database.call):
                    logger.info("Deleted the jobs that were completed or cancelled on %s", day)
        except DatabaseError as error:
            if fault_of(error) in OUTAGES:
                raise
            logger.exception("Partitions could not be made or dropped")

    def _look_at_server(self, clock: ServerClock) -> None:
        """Check whether heartbeats could be written since the last sweep, and whether the server's clock was set back.

        If the server has restarted, it was down. If this process slept, the workers on this host could not send
        heartbeats either, and its clock may have stopped. A closed connection alone is not an outage: the next one
        opens at once.
        """
        before, ttl = self._clock, conf.current().lease_ttl.total_seconds()
        self._clock = clock
        if 0 <= clock.up_for < ttl:
            self._wait(ttl - clock.up_for)
        elif before is None:
            self._wait(ttl if clock.up_for < 0 else 0.0)  # its clock was set back, and it may have just restarted
        elif clock.started_at != before.started_at or (
            not self._outages.is_on and clock.up_for - before.up_for > max(ttl, 1.5 * self.interval)
        ):
            self._wait(ttl)
        if before is not None and clock.up_for < before.up_for - STEP:
            self._steps.append(timedelta(seconds=before.up_for - clock.up_for))
        elif before is None and clock.up_for < 0:
            self._steps.append(None)
        while self._steps:
            self._shorten_leases(self._steps[0])
            self._steps.pop(0)  # last, so that it is retried after an error

    def _shorten_leases(self, step: timedelta | None) -> None:
        """Shorten leases that were granted before the clock was set back."""
        shortened = 0
        while (some := self.database.call(self.database.jobs.shorten_leases, step=step)) > 0:
            shortened += some
            if some < REAP_LIMIT:
                break
        if shortened:
            logger.warning("The server's clock was set back: %d leases were shortened accordingly", shortened)

    def _wait(self, seconds: float) -> None:
        """Ignore expired leases for so many seconds, at most for the duration of one lease."""
        if seconds <= 0:
            return
        until = time.monotonic() + seconds
        if until > self._outages.trusts_leases_at + 1.0:
            logger.info("The database was unavailable: expired leases are ignored for %.1f s", seconds)
        self._outages.trusts_leases_at = max(until, self._outages.trusts_leases_at)

    def _asked(self, question: Callable[[], T]) -> T:
        """Run a query, again if the connection is lost: a closed connection is not an outage."""
        try:
            return question()
        except Exception as error:
            if fault_of(error) not in OUTAGES:
                raise
        try:
            return question()
        except Exception:
            if self._clock is not None:
                self._outages.away()
            raise


# The result of a sweep.


@dataclass(slots=True, kw_only=True)
class Swept:
    reaped: list[Reaped]
    lost: list[str] = field(default_factory=list)  # workers
    pruned: dict[Status, int] = field(default_factory=dict)  # deleted jobs
    said: dict[str, Any] = field(default_factory=dict)  # from the steps of capabilities
    has_more: bool = False  # start the next sweep at once
    took: float = 0.0  # seconds

    def to_json(self) -> str:
        """Return a line for the log."""
        outcomes = Counter(str(one.outcome) for one in self.reaped)
        said = {"reaped": len(self.reaped), "outcomes": outcomes, "lost": self.lost, **self.said}
        return json.dumps(said | {"pruned": self.pruned, "took": round(self.took, 4)})


# Sets jobs of paused tasks aside, and brings them back. A watchdog does it in its sweep, if there are any.


def see_to_shut_tasks(database: GuardedConnection) -> bool:
    """Set jobs aside or bring them back. Return whether more may be left."""
    aside, brought_back = (
        [queue for queues in in_batches(partial(database.call, verb)) for queue in queues]
        for verb in (database.jobs.set_aside, database.jobs.bring_back)
    )
    if brought_back:
        database.call(wake_workers, database.alias, set(brought_back))
    if aside or brought_back:
        logger.info("Paused tasks: %d jobs were set aside, %d were brought back", len(aside), len(brought_back))
    return max(len(aside), len(brought_back)) >= MOST_BATCHES * SET_ASIDE_LIMIT


# Outages: periods in which leases expire although their holders are alive, because heartbeats cannot be written.
#
# A successful write shows the end of an outage. From then on, holders get the time of one lease for their heartbeats.


READ_ONLY = "25006"
WAITED_IN_VAIN = frozenset({"55P03", "57014"})  # lock_timeout, statement_timeout


@dataclass(slots=True)
class Outages:
    """The outages that a watchdog has noticed. Instants are of the monotonic clock."""

    beats: Heartbeat | None = None
    trusts_leases_at: float = float("-inf")
    is_on: bool = False
    _is_long: bool = False  # writes were impossible for an unknown time
    _answered_at: float = float("-inf")

    def answered(self, now: float) -> None:
        """Note that a sweep had no problems."""
        self._answered_at = now

    def failed(self, error: BaseException) -> None:
        """Note an error of a sweep. The same error may keep workers from extending leases."""
        fault, state = fault_of(error), sqlstate_of(error)
        if fault is DatabaseFault.FULL or state == READ_ONLY:  # statements that need no space have succeeded meanwhile
            self.is_on = self._is_long = True
        elif state in WAITED_IN_VAIN:
            self.is_on = True

    def away(self) -> None:
        """Note that the database could not be reached."""
        self.is_on = self._is_long = True

    def over(self, now: float, ttl: float) -> float:
        """Note that writes succeed again. Return for how many seconds expired leases must be ignored.

        After an outage shorter than half a lease, none has expired: heartbeats come three times in a lease.
        """
        is_long, self.is_on, self._is_long = self._is_long or now - self._answered_at >= ttl / 2, False, False
        return ttl if is_long else 0.0

    def trusts_leases(self, now: float, ttl: float) -> bool:
        """Return whether an expired lease means that its holder is gone."""
        if now < self.trusts_leases_at:
            return False
        return self.beats is None or (not self.beats.failing_since and now - self.beats.recovered_at >= ttl)
