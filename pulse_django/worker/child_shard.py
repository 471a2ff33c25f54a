"""What a child has for each shard: a thread that claims there, one that reports there, and the runs between them.

Each fails alone. While one database is away, its threads try again, and the child goes on with the jobs of the others.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from pulse_django.execution.run import Run
from pulse_django.words.identity import Identity

from .channel import Message
from .claimer import Claimer
from .guarded_connection import GuardedConnection, keep_calling, longest_wait
from .in_flight import InFlight
from .needed_threads import NeededThreads
from .report_relay import ReportRelay
from .reporter import Reporter
from .run_events import RunEvents
from .shared_leases import SharedLeases
from .worker_options import WorkerOptions


class Owner(Protocol):
    """What the parts of a shard tell their child."""

    def start(self, runs: Sequence[Run]) -> None: ...
    def nudge(self) -> None: ...
    def slot_freed(self, shard: int | None) -> None: ...
    def share_changed(self, shard: int) -> None: ...


class ChildShard:
    def __init__(
        self,
        shard: int,
        options: WorkerOptions,
        number: int,
        identity: Identity,
        held: SharedLeases,
        run_events: RunEvents,
        owner: Owner,
        send: Callable[[Message], object],
    ) -> None:
        """``shard`` is its place among those of the worker, and ``number`` that of the child."""
        self.shard, self._held, self._send = shard, held, send
        alias = options.aliases[shard]
        self.of = options.of_shard(alias)
        self.in_flight = InFlight(held, alias, options.concurrency, options.max_jobs)
        self.reporter = Reporter(
            GuardedConnection(alias, f"reports {number}{self.of}", keeps_plans=True),
            self.in_flight,
            partial(owner.slot_freed, shard),
            run_events,
            lambda: self.claimer.look_soon(),
        )
        self.claimer = Claimer(
            options,
            GuardedConnection(alias, f"claims {number}{self.of}", keeps_plans=True),
            identity,
            self.in_flight,
            owner.start,
            self._found_work,
            owner.nudge,
            partial(owner.share_changed, shard),
        )
        self.relay = ReportRelay(self._tell)
        self._claiming: threading.Thread
        self._reporting: threading.Thread

    def start(self, threads: NeededThreads, stopping: threading.Event, finished: threading.Event) -> None:
        self._claiming = threads.start(f"claims{self.of}", partial(self._claim, stopping), stopping)
        report = partial(keep_calling, self.reporter.database, finished, self.reporter.run_once)
        self._reporting = threads.start(f"reports{self.of}", report, finished)

    @property
    def is_claiming(self) -> bool:
        return self._claiming.is_alive()

    @property
    def is_drained(self) -> bool:
        """Whether nothing is due there, and nothing is left to do."""
        return self.claimer.drained and self.in_flight.is_idle and not self.reporter.is_unresolved

    @property
    def is_done(self) -> bool:
        return self.in_flight.is_idle and self.reporter.is_idle

    def end(self, patience: float) -> None:
        self.reporter.interrupt()
        self._reporting.join(patience)

    def hear(self, message: Message) -> None:
        """Take what the keeper says of this shard."""
        if "wake" in message:
            self.claimer.wake(message["wake"], message["following"])
        elif "hears" in message:
            self.claimer.hears = message["hears"]
        elif "settled" in message:
            self.relay.answered(message)

    def look_after(self, now: float) -> None:
        """Note since when the database has failed, and close connections that do not answer."""
        since = self.reporter.failing_since
        self._held.note_failures(unreported_since=since, cut_off_since=self.claimer.database.cut_off_since)
        self.in_flight.cannot_report = bool(since) and now - since > longest_wait()
        for database in (self.claimer.database, self.reporter.database):
            database.enforce(now)

    def counts(self) -> dict[str, Any]:
        return {
            "refused_settles": self.reporter.refused,
            "limit_refusals": self.claimer.limit_refusals,
            "database_errors": self.claimer.database.errors + self.reporter.database.errors,
        }

    def pass_progress(self) -> None:
        for run in self.in_flight.active:
            if (progress := run.take_progress()) is not None:
                lease = run.claim.lease
                self._tell({"progress": progress, "lease": [lease.job_id, lease.holder, lease.attempt]})

    def _tell(self, message: Message) -> None:
        self._send(message | {"shard": self.shard})

    def _found_work(self, queue: str, more: bool) -> None:
        """Tell that a wake-up was not in vain, and whether there may be more than this child has room for."""
        self._tell({"found": queue, "more": more})

    def _claim(self, stopping: threading.Event) -> None:
        keep_calling(self.claimer.database, stopping, self.claimer.run_once)
        with suppress(Exception):
            self.claimer.farewell()
