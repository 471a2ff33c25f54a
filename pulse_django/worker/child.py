"""A child: claims jobs, runs their handlers, and reports how they ended. It shares its leases with its keeper.

Four kinds of threads: this one looks after the others and never asks the database; one claims; one reports; the
executors' run handlers.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from pulse_django.execution.run import Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.identity import Identity

from .channel import Channel, Hung, Message
from .claimer import Claimer
from .dispatcher import Dispatcher
from .executors.choice import Executors
from .guarded_connection import GuardedConnection, keep_calling, longest_wait
from .in_flight import InFlight
from .log_writer import LogWriter
from .memory import resident_mib
from .needed_threads import NeededThreads
from .report_relay import ReportRelay
from .reporter import Reporter
from .run_events import RunEvents
from .run_supervisor import LONGEST_WAIT_FOR_SLOT, RunSupervisor
from .shared_leases import SharedLeases
from .worker_options import WorkerOptions

logger = SafeLogger("pulse_django.worker")

# Seconds between two looks at what is in hand, and at nothing. Shorter costs; longer makes timeouts coarse.
TICK, IDLE_TICK = 0.1, 1.0
# The same while one thread runs short handlers: for so long a slow one may hold up the others.
HURRIED_TICK = 0.01
BETWEEN_PROGRESS = 0.2
PATIENCE_AT_END = 1.0  # seconds for threads that have nothing left to do
DRAINED = "nothing is due"  # why a burst is over
ORPHANED = "orphaned"
EX_SOFTWARE = 70  # sysexits.h: an internal error


class Child:
    def __init__(
        self,
        options: WorkerOptions,
        number: int,
        boot_id: str,
        keeper: Channel,
        fork_server: Channel,
        held: SharedLeases,
    ):
        self._options, self._keeper, self._held = options, keeper, held
        self._in_flight = in_flight = InFlight(held, options.alias, options.concurrency, options.max_jobs)
        identity = Identity(options.name, boot_id)
        held.holder_prefix = f"{identity.name}:{identity.boot_id}:"
        self._run_events = RunEvents()
        self._reporter = Reporter(
            GuardedConnection(options.alias, f"reports {number}", keeps_plans=True),
            in_flight,
            lambda: self._claimer.slot_freed(),
            self._run_events,
            lambda: self._claimer.look_soon(),
        )
        self._claimer = Claimer(
            options,
            GuardedConnection(options.alias, f"claims {number}", keeps_plans=True),
            identity,
            in_flight,
            self._start,
            self._found_work,
            self._nudge,
        )
        self._relay = ReportRelay(keeper.send)
        self._loops = loops = NeededThreads(self._end_loudly)
        self._dispatcher = Dispatcher(
            in_flight,
            lambda begin, done: Executors(options.concurrency, begin, done, fork_server, loops.start, self._nudge),
            self._reporter.report,
            self._claimer.slot_freed,
        )
        self._executors = self._dispatcher.executors
        self._judge = RunSupervisor(in_flight, self._executors.of, self._reporter.report)
        self._stopping = threading.Event()  # no more claims
        self._finished = threading.Event()  # no more reports
        self._why = ""
        self._progress_at = 0.0
        self._is_hurried = False  # the main thread looks again soon
        self._said: Message = {}
        self._ticked_at = 0.0
        self._nudged, self._nudges = socket.socketpair()
        for end in (self._nudged, self._nudges):
            end.setblocking(False)

    def run(self) -> int:
        """Work until stopped or used up, and until every run has been reported."""
        log = LogWriter()
        self._loops.start("log", log.run, log.over)
        log.install()
        claiming = self._loops.start("claims", self._claim, self._stopping)
        reporting = self._keep("reports", self._reporter.database, self._finished, self._reporter.run_once)
        telling = self._loops.start("run-events", lambda: self._run_events.run(self._finished), self._finished)
        self._keeper.send({"ready": True})
        with selectors.DefaultSelector() as selector:
            selector.register(self._keeper, selectors.EVENT_READ)
            selector.register(self._nudged, selectors.EVENT_READ)
            while not (self._why and not claiming.is_alive() and self._is_done()):
                selector.select(timeout=self._until_next_look())
                self._executors.hurry()
                if not self._why:
                    self._dispatcher.start_due()
                nudged = self._take_nudges()
                if self._why != ORPHANED:
                    self._hear(selector)
                # A wake-up is in a hurry, and the thread that it woke needs the interpreter that a tick would hold.
                if nudged or self._why or time.monotonic() - self._ticked_at >= TICK / 2:
                    self._tick(claiming)
        self._finished.set()
        for part, thread in ((self._reporter, reporting), (self._run_events, telling)):
            part.interrupt()
            thread.join(PATIENCE_AT_END)
        log.close(PATIENCE_AT_END)
        self._keeper.send({"ended": self._why})
        self._keeper.flush()
        return 0

    def _until_next_look(self) -> float:
        self._is_hurried = self._executors.works_in_a_row
        if self._is_hurried:
            return HURRIED_TICK
        if self._in_flight.is_idle and not self._why:
            return IDLE_TICK
        return TICK if self._why else max(0.0, min(TICK, self._dispatcher.due_in()))

    # Threads of others call these

    def _start(self, runs: Sequence[Run]) -> None:
        self._dispatcher.start(runs)
        if self._dispatcher.due_in() < IDLE_TICK or (self._executors.works_in_a_row and not self._is_hurried):
            self._nudge()

    def _take_nudges(self) -> bool:
        with suppress(BlockingIOError):
            return bool(self._nudged.recv(4_096))
        return False

    def _nudge(self) -> None:
        """Let the main thread look now instead of at its next tick."""
        with suppress(BlockingIOError):
            self._nudges.send(b"!")

    def _found_work(self, queue: str, more: bool) -> None:
        """Tell that a wake-up was not in vain, and whether there may be more than this child has room for."""
        self._keeper.send({"found": queue, "more": more})

    # The main thread's own

    def _hear(self, selector: selectors.BaseSelector) -> None:
        try:
            messages = self._keeper.receive()
        except Hung:
            selector.unregister(self._keeper)
            self._orphaned()
            return
        for message in messages:
            if "wake" in message:
                self._claimer.wake(message["wake"], message["following"])
            elif "hears" in message:
                self._claimer.hears = message["hears"]
            elif "drain" in message:
                self._drain(message["drain"])
            elif "relay" in message:
                self._reporter.settle = self._relay.settle
                self._drain(message["relay"])
            elif "settled" in message:
                self._relay.answered(message)

    def _orphaned(self) -> None:
        """The keeper is gone, and the leases are not extended any more. Runs may go on for as long as they last."""
        logger.error("The parent process died: finishing running jobs and claiming no more")
        self._in_flight.is_orphaned = True
        self._drain(ORPHANED)
        self._why = ORPHANED

    def _drain(self, why: str) -> None:
        if not self._why:
            self._why = why
            self._stopping.set()
            self._claimer.interrupt()
            self._keeper.send({"draining": why})

    def _tick(self, claiming: threading.Thread) -> None:
        self._ticked_at = now = time.monotonic()
        self._held.live()
        self._loops.check()
        self._note_failures(now)
        for database in (self._claimer.database, self._reporter.database):
            database.enforce(now)
        self._keeper.flush()
        runs = self._in_flight.active
        if self._judge.look_after(runs, now) and not self._why:
            self._dispatcher.give_back(now - LONGEST_WAIT_FOR_SLOT)
        self._pass_progress(runs, now)
        if self._why and not claiming.is_alive():
            self._dispatcher.give_back()
        elif not self._why:
            self._end_if_due()
        self._report_vitals()

    def _note_failures(self, now: float) -> None:
        since = self._reporter.failing_since
        self._held.note_failures(unreported_since=since, cut_off_since=self._claimer.database.cut_off_since)
        self._in_flight.cannot_report = bool(since) and now - since > longest_wait()

    def _end_if_due(self) -> None:
        is_over = self._claimer.drained and self._in_flight.is_idle and not self._reporter.is_unresolved
        if self._options.burst and is_over:
            self._drain(DRAINED)
        elif self._in_flight.is_used_up:
            in_flight = self._in_flight
            self._drain("all its slots are stuck" if in_flight.stuck else f"it has run {in_flight.taken} jobs")
        elif self._in_flight.blocks_a_retry(time.monotonic()):
            self._drain("a retry is waiting for a handler that does not end")
        elif self._options.max_rss and resident_mib() > self._options.max_rss:
            self._drain(f"it uses {resident_mib()} MiB")

    def _is_done(self) -> bool:
        return self._in_flight.is_idle and self._reporter.is_idle

    def _pass_progress(self, runs: Sequence[Run], now: float) -> None:
        if now - self._progress_at < BETWEEN_PROGRESS:
            return
        self._progress_at = now
        for run in runs:
            if (progress := run.take_progress()) is not None:
                lease = run.claim.lease
                self._keeper.send({"progress": progress, "lease": [lease.job_id, lease.holder, lease.attempt]})

    def _report_vitals(self) -> None:
        how_it_is = {
            "stuck": self._in_flight.stuck_slots,
            "slots_beyond_leases": self._in_flight.slots_beyond_leases,
            "refused_settles": self._reporter.refused,
            "limit_refusals": self._claimer.limit_refusals,
            "database_errors": self._claimer.database.errors + self._reporter.database.errors,
        }
        if how_it_is != self._said:
            self._said = how_it_is
            self._keeper.send({"is": how_it_is})

    def _claim(self) -> None:
        keep_calling(self._claimer.database, self._stopping, self._claimer.run_once)
        with suppress(Exception):
            self._claimer.farewell()

    def _keep(
        self, name: str, database: GuardedConnection, over: threading.Event, step: Callable[[], float]
    ) -> threading.Thread:
        return self._loops.start(name, lambda: keep_calling(database, over, step), over)

    def _end_loudly(self, name: str, why: str) -> None:
        """End this process because a thread of it ended: what it holds is its keeper's to recover."""
        self._keeper.send({"failing": f"its thread {name!r} ended ({why})"})
        os._exit(EX_SOFTWARE)
