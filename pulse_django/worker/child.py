"""A child process: it claims jobs, runs their handlers, and reports their outcomes. Its keeper extends its leases.

It has four kinds of threads. The main thread supervises the others and never uses the database. For each shard, one
thread claims and one reports. The threads of the executors run handlers.
"""

from __future__ import annotations

import faulthandler
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django.db import connections

from pulse_django import conf
from pulse_django.models import Job
from pulse_django.queue.capability import provided
from pulse_django.queue.words.decisions import Postpone
from pulse_django.queue.words.lane_keys import limiter_of
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Cancelled, Outcome, Released, Stalled, TimedOut
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.judging import judged
from pulse_django.run.registry import registry
from pulse_django.run.run import ChunkRun, Clock, Performed, Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.signals import child_started, send

from .channel import Channel, Hung, Message, Nudges
from .claimer import Claimer
from .executors import Executor
from .executors.choice import Executors
from .fork_server import ignore_stops
from .guarded_connection import GuardedConnection, keep_calling, longest_wait
from .handler_stacks import send_dump_file
from .in_flight import HORIZON, Gathering, InFlight, share_slots
from .listener import Listener
from .logs import LogWriter
from .needed_threads import NeededThreads
from .process_samples import resident_mib
from .reporter import Reporter
from .run_events import RunEvents, log_lost, log_out_of_touch
from .shared_leases import SharedLeases
from .worker_options import WorkerOptions

logger = SafeLogger("pulse_django.worker")

# Seconds between two checks with and without running jobs. Shorter costs CPU; longer makes timeouts inexact.
TICK, IDLE_TICK = 0.1, 1.0
# The same while one thread runs short handlers, where a slow one may delay the others for so long.
HURRIED_TICK = 0.01
BETWEEN_PROGRESS = 0.2
PATIENCE_AT_END = 1.0  # seconds to wait for threads without work
DRAINED = "nothing is due"  # the reason for the end of a burst
ORPHANED = "orphaned"
EX_SOFTWARE = 70  # sysexits.h: an internal error

MOST_NAMED = 20  # jobs with stuck handlers


class Child:
    def __init__(
        self,
        options: WorkerOptions,
        number: int,
        boot_id: str,
        keeper: Channel,
        fork_server: Channel,
        held: Sequence[SharedLeases],
    ):
        """``held`` are the leases of each shard."""
        self._options, self._number, self._keeper, self._held = options, number, keeper, held
        self._nudges = Nudges()
        self.nudge = self._nudges.nudge  # make the main thread check now instead of at its next tick
        self._run_events = RunEvents()
        self._shards = [ChildShard(self, shard, number, boot_id, leases) for shard, leases in enumerate(held)]
        self._reporters = {one.in_flight.alias: one.reporter for one in self._shards}
        self._flights = [one.in_flight for one in self._shards]
        share_slots(self._flights)
        in_flight = self._flights[0]
        self._loops = NeededThreads(self._end_loudly)
        report = self._report if len(held) > 1 else self._shards[0].reporter.report
        slot_freed = partial(self.slot_freed, None) if len(held) > 1 else self._shards[0].claimer.slot_freed
        self._dispatcher = dispatcher = Dispatcher(in_flight, report, slot_freed)
        self._executors = dispatcher.executors = Executors(
            options.concurrency, dispatcher.begin, dispatcher.done, fork_server, self._loops.start, self.nudge
        )
        self._judge = RunSupervisor(in_flight, self._executors.of, report)
        self._stopping = threading.Event()  # no more claims
        self._finished = threading.Event()  # no more reports
        self._why = ""
        self._progress_at = 0.0
        self._is_hurried = False  # the main thread ticks more often
        self._said: Message = {}
        self._ticked_at = 0.0

    def run(self) -> int:
        """Work until stopped or used up. Then wait until every run has been reported."""
        log = LogWriter()
        log.start(self._loops)
        send(child_started, Job, number=self._number, **self._options.facts)
        connections.close_all()  # opened by receivers: this thread does not use a database
        for shard in self._shards:
            shard.start(self._loops, self._stopping, self._finished)
        telling = self._loops.start("run-events", lambda: self._run_events.run(self._finished), self._finished)
        self._keeper.send({"ready": True})
        with selectors.DefaultSelector() as selector:
            selector.register(self._keeper, selectors.EVENT_READ)
            selector.register(self._nudges, selectors.EVENT_READ)
            while not (self._why and not self._is_claiming and all(one.is_done for one in self._shards)):
                selector.select(timeout=self._until_next_look())
                self._executors.hurry()
                if not self._why:
                    self._dispatcher.start_due()
                nudged = self._nudges.taken()
                if self._why != ORPHANED:
                    self._hear(selector)
                # After a wake-up, the woken thread needs the interpreter, which a tick would hold.
                if nudged or self._why or time.monotonic() - self._ticked_at >= TICK / 2:
                    self._tick()
        self._finished.set()
        for shard in self._shards:
            shard.end(PATIENCE_AT_END)
        self._run_events.interrupt()
        telling.join(PATIENCE_AT_END)
        log.close(PATIENCE_AT_END)
        self._keeper.send({"ended": self._why})
        self._keeper.flush()
        return 0

    def _until_next_look(self) -> float:
        self._is_hurried = self._executors.works_in_a_row
        if self._is_hurried:
            return HURRIED_TICK
        if not self._why and all(one.is_idle for one in self._flights):
            return IDLE_TICK
        return TICK if self._why else max(0.0, min(TICK, self._dispatcher.due_in()))

    # Called by other threads

    def start(self, runs: Sequence[Run]) -> None:
        """Run claimed jobs."""
        self._dispatcher.start(runs)
        if self._dispatcher.due_in() < IDLE_TICK or (self._executors.works_in_a_row and not self._is_hurried):
            self.nudge()

    def slot_freed(self, shard: int | None) -> None:
        """Start claims that waited for a slot. ``shard`` is the shard of the ended job, if its end was reported."""
        for one in self._shards:
            one.claimer.slot_freed(by_other_shard=len(self._shards) > 1 and one.shard != shard)

    def share_changed(self, shard: int) -> None:
        """Make other shards check for free slots: this one claimed less than its share, or has no due jobs."""
        for one in self._shards:
            if one.shard != shard:
                one.claimer.slot_freed(by_other_shard=True)

    def _report(self, performed: Performed) -> None:
        self._reporters[str(performed.run.alias)].report(performed)

    # Called by the main thread

    def _hear(self, selector: selectors.BaseSelector) -> None:
        try:
            messages = self._keeper.receive()
        except Hung:
            selector.unregister(self._keeper)
            # The leases are not extended any more. Runs may go on until their leases expire.
            logger.error("The parent process died: finishing running jobs and claiming no more")
            for one in self._flights:
                one.is_orphaned = True
            self._drain(ORPHANED)
            self._why = ORPHANED
            return
        for message in messages:
            if "where" in message:
                run = next((one for one in self._active if one.claim.job_id == message["where"]), None)
                if run is not None:
                    text = self._executors.of(run).current_stack(run.chunk or run)
                    self._keeper.send({"stack": text, "job": message["where"]})
            elif "shard" in message:
                self._shards[message["shard"]].hear(message)
            if "drain" in message:
                self._drain(message["drain"])

    def _drain(self, why: str) -> None:
        if not self._why:
            self._why = why
            self._stopping.set()
            for shard in self._shards:
                shard.claimer.interrupt()
            self._keeper.send({"draining": why})

    def _tick(self) -> None:
        self._ticked_at = now = time.monotonic()
        self._held[0].live()
        self._loops.check()
        for shard in self._shards:
            shard.look_after(now)
        self._keeper.flush()
        if self._judge.look_after(self._active, now) and not self._why:
            self._dispatcher.give_back(lambda run: waits_too_long(run, now))
        if now - self._progress_at >= BETWEEN_PROGRESS:
            self._progress_at = now
            for shard in self._shards:
                shard.pass_progress()
        if self._why and not self._is_claiming:
            self._dispatcher.give_back()
        elif not self._why:
            self._end_if_due()
        self._report_vitals()

    def _end_if_due(self) -> None:
        in_flight = self._flights[0]
        if self._options.burst and all(one.is_drained for one in self._shards):
            self._drain(DRAINED)
        elif in_flight.is_used_up:
            is_stuck = in_flight.stuck_slots > 0
            self._drain("all its slots are stuck" if is_stuck else f"it has run {in_flight.all_taken} jobs")
        elif any(one.blocks_a_retry(time.monotonic()) for one in self._flights):
            self._drain("a retry is waiting for a handler that does not end")
        elif self._options.max_rss_mib and resident_mib() > self._options.max_rss_mib:
            self._drain(f"it uses {resident_mib()} MiB")

    @property
    def _is_claiming(self) -> bool:
        return any(one.claiming.is_alive() for one in self._shards)

    @property
    def _active(self) -> list[Run]:
        return [run for one in self._flights for run in one.active]

    def _report_vitals(self) -> None:
        stuck = [run for one in self._flights for run in list(one.stuck.values())]  # runs with abandoned handlers
        how_it_is = {
            "stuck": self._flights[0].stuck_slots,
            "stuck_jobs": [
                {"job": run.claim.job_id, "task": run.claim.task, "begun_at": run.begun_at}
                for run in stuck[:MOST_NAMED]
            ],
            "slots_beyond_leases": sum(one.slots_beyond_leases for one in self._flights),
            "counts": [one.counts() for one in self._shards],
            "refused": [one.claimer.database.refused or one.reporter.database.refused for one in self._shards],
        }
        if how_it_is != self._said:
            self._said = how_it_is
            self._keeper.send({"is": how_it_is})

    def _end_loudly(self, name: str, why: str) -> None:
        """End this process because one of its threads ended. The keeper recovers its jobs."""
        self._keeper.send({"failing": f"its thread {name!r} ended ({why})"})
        os._exit(EX_SOFTWARE)


# The entry point of a child process.


# How often a thread has to release the interpreter lock if others want it. With Python's 5 ms, an answer of the
# database waits behind a busy handler for as long as the query took. A much shorter interval costs too many switches.
SWITCH_INTERVAL = 0.001


def child_main(
    options: WorkerOptions, held: Sequence[SharedLeases], order: Message, keeper: Channel, fork_server: Channel
) -> int:
    """Run a child in a process that a fork server made for a keeper."""
    ignore_stops()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    faulthandler.enable()
    send_dump_file(keeper)
    sys.setswitchinterval(SWITCH_INTERVAL)
    conf.current()
    return Child(options, order["number"], order["boot_id"], keeper, fork_server, held).run()


# The parts of a child for one shard: a thread that claims, a thread that reports, and the runs between them.
#
# Shards fail independently. While one database is down, its threads retry, and the child goes on with the jobs of the
# other shards.


class ChildShard:
    def __init__(self, child: Child, shard: int, number: int, boot_id: str, held: SharedLeases) -> None:
        """``shard`` is the index of the shard in the worker, and ``number`` the number of the child."""
        options = child._options
        self.shard, self._held, self._send = shard, held, child._keeper.send
        self._child = child
        self._alias = alias = options.aliases[shard]
        self.of = options.of_shard(alias)
        identity = Identity(options.name, boot_id)
        held.holder_prefix = f"{identity.name}:{identity.boot_id}:"
        self.in_flight = InFlight(held, alias, options.concurrency, options.max_jobs, options.processes)
        self.reporter = Reporter(
            self._connection("reports", number),
            self.in_flight,
            partial(child.slot_freed, shard),
            child._run_events,
            lambda: self.claimer.look_soon(),
            self._tell,
        )
        self._listener: Listener | None = None
        if conf.current().notify and options.processes == 1:
            self._listener = Listener(
                alias,
                options.queues,
                self._wake,
                hears_changed=self._hears,
                standing=self._standing,
                watched=self._note_watched,
                of_shard=self.of,
            )
        self.claimer = Claimer(
            options,
            self._connection("claims", number),
            identity,
            self.in_flight,
            child.start,
            self._found_work,
            child.nudge,
            partial(child.share_changed, shard) if len(options.aliases) > 1 else None,
        )
        self.claiming: threading.Thread
        self._reporting: threading.Thread

    def start(self, threads: NeededThreads, stopping: threading.Event, finished: threading.Event) -> None:
        claimer, reporter = self.claimer, self.reporter
        claim = partial(keep_calling, claimer.database, stopping, claimer.run_once, claimer.farewell)
        report = partial(keep_calling, reporter.database, finished, reporter.run_once)
        self.claiming = threads.start(f"claims{self.of}", claim, stopping)
        self._reporting = threads.start(f"reports{self.of}", report, finished)
        if (listener := self._listener) is not None:
            listen = partial(keep_calling, listener.database, finished, listener.run_once, listener.hang_up)
            threads.start(f"wake-up{self.of}", listen, finished)

    @property
    def is_drained(self) -> bool:
        """Return whether nothing is due in the shard, and nothing is left to do."""
        return self.claimer.drained and self.in_flight.is_idle and not self.reporter.has_notes

    @property
    def is_done(self) -> bool:
        return self.in_flight.is_idle and self.reporter.is_idle

    def end(self, patience: float) -> None:
        self.reporter.interrupt()
        self._reporting.join(patience)

    def hear(self, message: Message) -> None:
        """Handle a message of the keeper about this shard."""
        if "wake" in message:
            self.claimer.wake(message["wake"], message["following"])
        elif "hears" in message:
            self.claimer.hears = message["hears"]
        elif "settled" in message:
            self.reporter.answers.put(message)
        elif "relay" in message:
            self.reporter.goes_through_keeper = True

    def _wake(self, queue: str, following: str | None) -> bool:
        """Make the claimer look for jobs. A draining child passes the wake-up on, because its runs may take long."""
        if self._child._stopping.is_set():
            return False
        self.claimer.wake(queue, following)
        return True

    def _hears(self, hears: bool) -> None:
        self.claimer.hears = hears

    def _standing(self) -> tuple[int, int] | None:
        rank, total = self._held.standing
        return (rank, total) if total else None

    def _note_watched(self, job_id: int) -> None:
        """Tell the keeper, which saves progress, that a user is watching a job of this child."""
        if any(run.claim.job_id == job_id for run in self.in_flight.active):
            self._tell({"watched": job_id})

    def _found_work(self, queue: str, more: bool) -> None:
        """Note that a wake-up found work, and whether other children may find more."""
        if self._listener is not None:
            self._listener.found_work()
        else:
            self._tell({"found": queue, "more": more})

    def look_after(self, now: float) -> None:
        """Note since when the database has failed, and close connections that do not respond."""
        since = self.reporter.failing_since
        self._held.note_failures(unreported_since=since, cut_off_since=self.claimer.database.cut_off_since)
        self.in_flight.cannot_report = bool(since) and now - since > longest_wait()
        for database in (self.claimer.database, self.reporter.database):
            database.enforce(now)
        if (listener := self._listener) is not None:
            listener.database.enforce(now)
            listener.cut_if_hung(now)

    def counts(self) -> dict[str, Any]:
        return {
            "refused_settles": self.reporter.refused,
            "limit_refusals": self.claimer.keyed.refusals,
            "database_errors": self.claimer.database.errors + self.reporter.database.errors,
        }

    def pass_progress(self) -> None:
        for run in self.in_flight.active:
            if (progress := run.take_progress()) is not None:
                lease = run.claim.lease
                self._tell({"progress": progress, "lease": [lease.job_id, lease.holder, lease.attempt]})

    def _tell(self, message: Message) -> None:
        self._send(message | {"shard": self.shard})

    def _connection(self, purpose: str, number: int) -> GuardedConnection:
        return GuardedConnection(self._alias, f"{purpose} {number}{self.of}", keeps_plans=True)


# Passes claimed runs to the executors, and ended runs to the reporter.


OVERTAKING = "an earlier run of this job has not ended in this worker"
NOT_STARTED = timedelta(seconds=1)  # until a run that could not be started is retried
NEVER = float("inf")


class Dispatcher:
    """Starts and ends runs. The claiming threads and the threads of executors call it."""

    def __init__(
        self,
        in_flight: InFlight,
        report: Callable[[Performed], object],
        slot_freed: Callable[[], object],
        clock: Clock = time.monotonic,
    ) -> None:
        self._in_flight, self._report, self._slot_freed, self._clock = in_flight, report, slot_freed, clock
        gathering = provided(Gathering)
        self._gatherer = None if gathering is None else gathering.gatherer(in_flight, self.done, clock)
        self.executors: Executors

    def start(self, runs: Sequence[Run]) -> None:
        """Run these when slots become free, and jobs of chunks when their chunk is complete."""
        self._submit(self._gatherer.add(runs) if registry.chunked and self._gatherer else runs)

    def start_due(self) -> None:
        """Run the chunks that are due. Call it again after ``due_in`` seconds."""
        if self._gatherer and (chunks := self._gatherer.due()):
            self._submit(chunks)

    def due_in(self) -> float:
        """Return the seconds until ``start_due`` has work."""
        return self._gatherer.due_in() if registry.chunked and self._gatherer else NEVER

    def begin(self, run: Run) -> bool:
        """Return whether a handler may be called. Remove members of a chunk that may not begin."""
        if not isinstance(run, ChunkRun):
            return self._in_flight.of(run).begin(run)
        members, run.begun_at = run.members, self._clock()
        run.members = [one for one in members if self._in_flight.of(one).begin(one)]
        for one in members:
            if one.begun_at is None:
                self.done(one, None)
        return bool(run.members)

    def done(self, run: Run, performed: Performed | None) -> None:
        """Handle a run whose handler has ended or was never called, or a finished member of a chunk."""
        if isinstance(run, ChunkRun):
            self._chunk_done(run, performed)
        else:
            self._run_done(run, performed)
        self._slot_freed()

    def give_back(self, has_waited: Callable[[Run], bool] | None = None) -> None:
        """Return runs that have waited too long for a slot, or all runs that have not begun, to the queue."""
        for run in self.executors.take_back(has_waited or (lambda run: True)):
            self._not_started(run)
        if has_waited is None and self._gatherer:
            for run in self._gatherer.take_back():
                self._release(run)

    def _submit(self, runs: Sequence[Run]) -> None:
        for run in self.executors.submit(runs):
            self._not_started(run, NOT_STARTED)

    def _not_started(self, run: Run, delay: timedelta = timedelta()) -> None:
        for one in run.members if isinstance(run, ChunkRun) else [run]:
            self._release(one, delay)
        if isinstance(run, ChunkRun):
            self._in_flight.of(run).vacate(run)

    def _run_done(self, run: Run, performed: Performed | None) -> None:
        self._in_flight.of(run).ended(run)
        if performed is None:
            self._not_begun(run)
        else:
            if run.refuses:
                self._in_flight.of(run).refuse(run.refuses)
            if run.is_first_report() or performed.report is not None:
                self._report(performed)

    def _chunk_done(self, chunk: ChunkRun, performed: Performed | None) -> None:
        for one in performed.members if performed is not None else ():
            self._run_done(one.run, one)
        if performed is not None and performed.report is not None:  # an error outside of the handler
            for run in chunk.members:
                if self._in_flight.of(run).is_active(run):
                    self._run_done(run, judged(run, None, performed.report.outcome))
        self._in_flight.of(chunk).vacate(chunk)

    def _not_begun(self, run: Run) -> None:
        if run.lost:
            log_lost(run, "it was not started")
            self._in_flight.of(run).settled([run])
        elif not run.reported and self._in_flight.of(run).would_overtake(run):
            self._release(run, conf.current().backoff.delay(run.claim.refunds + 1), OVERTAKING)
        elif not run.reported:  # its deadline passed before it had a slot
            self._release(run)

    def _release(self, run: Run, delay: timedelta = timedelta(), why: str = "") -> None:
        """Return a job that has not begun to the queue. The attempt is refunded."""
        self._in_flight.of(run).ended(run)
        if run.is_first_report():
            self._report(Performed(run, None, Report(run.claim.lease, Released(delay, why), Postpone(delay, why))))


# Supervises runs: stops handlers, and settles runs whose handlers do not stop.


# Seconds for a handler to stop when asked. Then its run is given up, as for a thread.
PATIENCE_WITH_STOPPED = 1.0
# Seconds after which a job that has not begun goes back to the queue: another worker may have a free slot. A job with a
# limit would also keep other jobs of the limit from starting.
LONGEST_WAIT_FOR_SLOT = 2.0
LONGEST_WAIT_WITH_LIMIT = 2 * HORIZON


def waits_too_long(run: Run, now: float) -> bool:
    longest = LONGEST_WAIT_WITH_LIMIT if limiter_of(run.claim.lane_key) else LONGEST_WAIT_FOR_SLOT
    return now - run.waits_since > longest


class RunSupervisor:
    """Checks the runs of a child several times a second."""

    def __init__(
        self, in_flight: InFlight, executor_of: Callable[[Run], Executor], report: Callable[[Performed], object]
    ) -> None:
        self._in_flight, self._executor_of, self._report = in_flight, executor_of, report

    def look_after(self, runs: Sequence[Run], now: float) -> bool:
        """Check each run. Return whether some have waited too long for a slot."""
        slow = some_wait = False
        for run in runs:
            run.look()
            if run.begun_at is None:
                some_wait = some_wait or waits_too_long(run, now)
                continue
            slow = slow or now - run.begun_at > HORIZON
            if run.overdue(now) or run.stalled(now):
                self._in_flight.of(run).overstays(run)
            self._judge(run, now)
        if slow:
            self._in_flight.prefetch.jobs = 0
        return some_wait

    def _judge(self, run: Run, now: float) -> None:
        """Stop a run that must not go on, or give it up if it cannot be stopped."""
        remaining = run.lease_remaining()
        if run.reported or run.completed or not self._in_flight.of(run).is_active(run):
            return  # it has ended, and its entry belongs to another run
        if run.is_out_of_touch and not self._in_flight.is_orphaned:
            self._await_word(run, now, remaining)
            return
        if run.asked_to_stop_at is not None:
            if now - run.asked_to_stop_at > PATIENCE_WITH_STOPPED and not self._executor_of(run).kills:
                self._give_up(run)
            return
        if run.lost:
            log_lost(run, "stopping its handler" if run.chunk is None else "its chunk continues without it")
        elif remaining <= 0:
            run.was_out_of_touch = True
            log_out_of_touch(run, "stopping its handler")
        elif run.overdue(now):
            run.verdict = TimedOut(stack=self._stack_of(run))
        elif run.stalled(now):
            run.verdict = Stalled(stack=self._stack_of(run))
        elif not (run.cancelled and self._executor_of(run).can_stop and self._is_of_no_use(run)):
            return
        else:
            run.verdict = Cancelled()
        run.asked_to_stop_at = now
        if not self._stop(run) and not run.is_out_of_touch:
            self._give_up(run)

    def _stack_of(self, run: Run) -> str:
        """Return the stack of its handler, before it is asked to stop."""
        try:
            return self._executor_of(run).stack_of(run.chunk or run)
        except Exception:  # the handler runs on, and may change the frames
            logger.exception("Reading the stack of a handler failed")
            return ""

    @staticmethod
    def _is_of_no_use(run: Run) -> bool:
        """Return whether the handler is of no use any more. For a chunk: of no use to any of its jobs."""
        return run.chunk is None or run.chunk.is_of_no_use()

    def _stop(self, run: Run) -> bool:
        """Stop a handler. Stop that of a chunk at the first time limit, or if it is of no use to any job."""
        must_stop = isinstance(run.verdict, TimedOut | Stalled) or self._is_of_no_use(run)
        return must_stop and self._executor_of(run).stop(run.chunk or run)

    def _await_word(self, run: Run, now: float, remaining: float) -> None:
        """Let a handler that did not stop go on if a heartbeat succeeds after all: no other run has had its job."""
        if remaining > 0 and now - (run.asked_to_stop_at or now) > PATIENCE_WITH_STOPPED:
            run.asked_to_stop_at = None
            if not self._executor_of(run).can_stop:  # other handlers may be cleaning up
                log_out_of_touch(run, "it was extended after all; the handler continues")

    def _give_up(self, run: Run) -> None:
        """Settle a run without waiting for its handler, which keeps its slot until it ends."""
        verdict: Outcome | None = None if run.lost else run.verdict
        stuck_before = self._in_flight.stuck_slots
        if not (self._in_flight.of(run).given_up(run) and run.is_first_report()):
            return  # it has just ended, and reports itself
        if (stuck := self._in_flight.stuck_slots) > stuck_before:  # not only one job of a chunk that goes on
            text = "job %d %r: the handler does not stop and keeps its slot (%d of %d are stuck)"
            logger.warning(text, run.claim.job_id, run.claim.task, stuck, self._in_flight.slots)
        if verdict is None:
            self._in_flight.of(run).settled([run])
        else:
            self._report(judged(run, registry.get(run.claim.task), verdict))
