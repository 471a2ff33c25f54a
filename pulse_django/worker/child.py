"""A child: claims jobs, runs their handlers, and reports how they ended. It shares its leases with its keeper.

Four kinds of threads: this one looks after the others and never asks the database; for each shard one claims, and one
reports; the executors' run handlers.
"""

from __future__ import annotations

import os
import selectors
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from pulse_django.execution.judging import Performed
from pulse_django.execution.run import Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.identity import Identity

from .channel import Channel, Hung, Message
from .child_shard import ChildShard
from .dispatcher import Dispatcher
from .executors.choice import Executors
from .in_flight_of_shards import InFlightOfShards
from .logs import LogWriter
from .memory import resident_mib
from .needed_threads import NeededThreads
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

MOST_NAMED = 20  # jobs whose handlers are stuck


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
        """``held`` has the leases of each shard."""
        self._options, self._keeper, self._held = options, keeper, held
        identity = Identity(options.name, boot_id)
        self._run_events = RunEvents()
        self._shards = []
        for shard, leases in enumerate(held):
            of_shard = Identity(options.name, boot_id)
            leases.holder_prefix = f"{identity.name}:{identity.boot_id}:"
            self._shards.append(
                ChildShard(shard, options, number, of_shard, leases, self._run_events, self, keeper.send)
            )
        self._reporters = {one.in_flight.alias: one.reporter for one in self._shards}
        flights = {one.in_flight.alias: one.in_flight for one in self._shards}
        self._in_flight = in_flight = next(iter(flights.values())) if len(flights) == 1 else InFlightOfShards(flights)
        self._loops = loops = NeededThreads(self._end_loudly)
        self._dispatcher = Dispatcher(
            in_flight,
            lambda begin, done: Executors(options.concurrency, begin, done, fork_server, loops.start, self.nudge),
            report := self._report if len(held) > 1 else self._shards[0].reporter.report,
            partial(self.slot_freed, None) if len(held) > 1 else self._shards[0].claimer.slot_freed,
        )
        self._executors = self._dispatcher.executors
        self._judge = RunSupervisor(in_flight, self._executors.of, report)
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
        for shard in self._shards:
            shard.start(self._loops, self._stopping, self._finished)
        telling = self._loops.start("run-events", lambda: self._run_events.run(self._finished), self._finished)
        self._keeper.send({"ready": True})
        with selectors.DefaultSelector() as selector:
            selector.register(self._keeper, selectors.EVENT_READ)
            selector.register(self._nudged, selectors.EVENT_READ)
            while not (self._why and not self._is_claiming and all(one.is_done for one in self._shards)):
                selector.select(timeout=self._until_next_look())
                self._executors.hurry()
                if not self._why:
                    self._dispatcher.start_due()
                nudged = self._take_nudges()
                if self._why != ORPHANED:
                    self._hear(selector)
                # A wake-up is in a hurry, and the thread that it woke needs the interpreter that a tick would hold.
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
        if self._in_flight.is_idle and not self._why:
            return IDLE_TICK
        return TICK if self._why else max(0.0, min(TICK, self._dispatcher.due_in()))

    # Threads of others call these

    def start(self, runs: Sequence[Run]) -> None:
        """Run what was claimed."""
        self._dispatcher.start(runs)
        if self._dispatcher.due_in() < IDLE_TICK or (self._executors.works_in_a_row and not self._is_hurried):
            self.nudge()

    def slot_freed(self, shard: int | None) -> None:
        """Let claims begin that waited for it. ``shard``: that of the job that has ended, if its end was reported."""
        for one in self._shards:
            one.claimer.slot_freed(by_other_shard=len(self._shards) > 1 and one.shard != shard)

    def share_changed(self, shard: int) -> None:
        """Let other shards look whether they have room: this one has claimed less than it might, or nothing is due."""
        for one in self._shards:
            if one.shard != shard:
                one.claimer.slot_freed(by_other_shard=True)

    def _report(self, performed: Performed) -> None:
        self._reporters[str(performed.run.alias)].report(performed)

    def _take_nudges(self) -> bool:
        with suppress(BlockingIOError):
            return bool(self._nudged.recv(4_096))
        return False

    def nudge(self) -> None:
        """Let the main thread look now instead of at its next tick."""
        with suppress(BlockingIOError):
            self._nudges.send(b"!")

    # The main thread's own

    def _hear(self, selector: selectors.BaseSelector) -> None:
        try:
            messages = self._keeper.receive()
        except Hung:
            selector.unregister(self._keeper)
            self._orphaned()
            return
        for message in messages:
            if "drain" in message:
                self._drain(message["drain"])
                continue
            if "where" in message:
                self._tell_where(message["where"])
                continue
            shard = self._shards[message["shard"]]
            if "relay" in message:
                shard.reporter.settle = shard.relay.settle
                self._drain(message["relay"])
            else:
                shard.hear(message)

    def _tell_where(self, job_id: int) -> None:
        """Say where the handler of a job is."""
        run = next((one for one in self._in_flight.active if one.claim.job_id == job_id), None)
        if run is not None:
            text = self._executors.of(run).current_stack(run.chunk or run)
            self._keeper.send({"stack": text, "job": job_id})

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
        runs = self._in_flight.active
        if self._judge.look_after(runs, now) and not self._why:
            self._dispatcher.give_back(now - LONGEST_WAIT_FOR_SLOT)
        self._pass_progress(now)
        if self._why and not self._is_claiming:
            self._dispatcher.give_back()
        elif not self._why:
            self._end_if_due()
        self._report_vitals()

    def _end_if_due(self) -> None:
        if self._options.burst and all(one.is_drained for one in self._shards):
            self._drain(DRAINED)
        elif self._in_flight.is_used_up:
            in_flight = self._in_flight
            is_stuck = in_flight.stuck_slots > 0
            self._drain("all its slots are stuck" if is_stuck else f"it has run {in_flight.all_taken} jobs")
        elif self._in_flight.blocks_a_retry(time.monotonic()):
            self._drain("a retry is waiting for a handler that does not end")
        elif self._options.max_rss and resident_mib() > self._options.max_rss:
            self._drain(f"it uses {resident_mib()} MiB")

    @property
    def _is_claiming(self) -> bool:
        return any(one.is_claiming for one in self._shards)

    def _pass_progress(self, now: float) -> None:
        if now - self._progress_at < BETWEEN_PROGRESS:
            return
        self._progress_at = now
        for shard in self._shards:
            shard.pass_progress()

    def _stuck_jobs(self) -> list[Message]:
        """Name the jobs whose abandoned handlers hold slots."""
        stuck = [run for one in self._shards for run in list(one.in_flight.stuck.values())]
        return [
            {"job": run.claim.job_id, "task": run.claim.task, "begun_at": run.begun_at} for run in stuck[:MOST_NAMED]
        ]

    def _report_vitals(self) -> None:
        how_it_is = {
            "stuck": self._in_flight.stuck_slots,
            "stuck_jobs": self._stuck_jobs(),
            "slots_beyond_leases": self._in_flight.slots_beyond_leases,
            "counts": [one.counts() for one in self._shards],
        }
        if how_it_is != self._said:
            self._said = how_it_is
            self._keeper.send({"is": how_it_is})

    def _end_loudly(self, name: str, why: str) -> None:
        """End this process because a thread of it ended: what it holds is its keeper's to recover."""
        self._keeper.send({"failing": f"its thread {name!r} ended ({why})"})
        os._exit(EX_SOFTWARE)
