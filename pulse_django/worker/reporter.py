"""Report the outcomes of runs: a single one at once, many in batches, and again until the database has answered."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from queue import Empty, SimpleQueue

from pulse_django.queue.capability import WorkerDatabase, assembled, installed
from pulse_django.queue.words.states import Status
from pulse_django.queue.words.verb_results import Report, Settled
from pulse_django.run.notify import wake_workers
from pulse_django.run.run import Performed
from pulse_django.safe_logging import SafeLogger

from .channel import Message, from_wire, to_wire
from .guarded_connection import GuardedConnection, longest_wait
from .in_flight import FRESH, InFlight
from .run_events import RunEvents, log_lost

logger = SafeLogger("pulse_django.worker")

MOST_AT_ONCE = 400
# If more runs than this will end soon, a short wait makes a larger batch, and the delay is not noticeable.
FLOOD = 32
LINGER = 0.01
TICK = 0.5
RESOLVE_EVERY = 0.02  # seconds, during a stream of reports
PAUSE = 0.05  # seconds before a report is tried again: after a locked row, or without a heartbeat
# The most reports and characters of results in one message to the keeper: a channel with much more data counts as
# stuck.
MOST_RELAYED, MOST_TEXT = 100, 2_000_000
PATIENCES = 2  # times the longest wait for a statement: the keeper may have to connect first
NOTHING = Settled(accepted={}, repeated=frozenset(), lost=frozenset())


class NoAnswer(Exception):
    """The keeper has not settled these reports in time. They are sent again."""


class Reporter:
    def __init__(
        self,
        database: GuardedConnection,
        in_flight: InFlight,
        slot_freed: Callable[[], None],
        run_events: RunEvents,
        due_again: Callable[[], None] = lambda: None,
        tell: Callable[[Message], object] = lambda message: None,
    ) -> None:
        """``due_again`` is called when a job will run again. ``tell`` sends the keeper a message."""
        self.database = database
        self._due_again, self._tell = due_again, tell
        self._in_flight, self._slot_freed, self._run_events = in_flight, slot_freed, run_events
        self._inbox: SimpleQueue[Performed | None] = SimpleQueue()
        self._unsent: list[Performed] = []
        self.refused = 0  # reports so far of runs that had lost their lease
        self.failing_since = 0.0  # since when reports fail, by the monotonic clock; 0: they do not
        self.goes_through_keeper = False  # if this process cannot reach the database
        self.answers: SimpleQueue[Message] = SimpleQueue()  # from the keeper
        self._asked = 0  # the number of the last message to the keeper
        self.has_notes = False  # jobs may wait for reported jobs
        self._resolved_at = 0.0

    def report(self, performed: Performed) -> None:
        """Add a run whose handler has ended or was given up. Any thread may call it."""
        self._inbox.put(performed)

    def interrupt(self) -> None:
        """End the wait for a report."""
        self._inbox.put(None)

    @property
    def is_idle(self) -> bool:
        return self._inbox.empty() and not self._unsent

    def run_once(self) -> float:
        """Send the waiting reports. Return the pause."""
        batch = self._unsent + self._next()
        if not batch:
            self._resolve()
            return 0.0
        self._unsent = batch  # until it is settled
        waiting: list[Performed] = []
        sendable: list[Performed] = []
        for performed in batch:
            (waiting if self._is_out_of_touch(performed) else sendable).append(performed)
        self._in_flight.reporting(performed.run for performed in sendable)
        if errors := {one.run.claim.lease: one.afterwards for one in sendable if one.afterwards is not None}:
            self.database.call(self.database.jobs.keep_errors_after_completion, errors)
        reports = [performed.report for performed in sendable if performed.report is not None]
        settled = self._send(reports) if reports else NOTHING
        self._unsent = waiting if not self._in_flight.is_orphaned else self._dropped(waiting)
        over = sendable
        if settled.skipped:
            over = []
            for performed in sendable:
                is_skipped = performed.report is not None and performed.report.lease in settled.skipped
                (self._unsent if is_skipped else over).append(performed)
        if settled.has_notes or any(one.run.has_notes for one in sendable):
            self.has_notes = True  # before the slots are free, because a burst must not end yet
        self._conclude(over, settled)
        self._resolve()
        return PAUSE if self._unsent else 0.0

    def _resolve(self) -> None:
        """Free the jobs that waited for reported jobs: at once if there is no other work, or soon."""
        if not self.has_notes:
            return
        now = time.monotonic()
        if not self._inbox.empty() and now - self._resolved_at < RESOLVE_EVERY:
            return
        self._resolved_at = now
        left = [free(self.database, self._due_again) for free in _when_over()]
        self.has_notes = any(left)

    def _send(self, reports: list[Report]) -> Settled:
        try:
            settled: Settled = (
                self._relayed(reports)
                if self.goes_through_keeper
                else self.database.call(self.database.jobs.settle, reports, wait=False)
            )
        except BaseException:
            self.failing_since = self.failing_since or time.monotonic()
            raise
        self.failing_since = 0.0
        return settled

    def _relayed(self, reports: list[Report]) -> Settled:
        """Let the keeper settle these, one message after the other."""
        settled = NOTHING
        while reports:
            some = _part_of(reports)
            settled, reports = settled | self._asked_of_keeper(some), reports[len(some) :]
        return settled

    def _asked_of_keeper(self, reports: list[Report]) -> Settled:
        self._asked += 1
        self._tell({"reports": to_wire(tuple(reports)), "number": self._asked})
        while True:
            try:
                answer = self.answers.get(timeout=PATIENCES * longest_wait())
            except Empty:
                raise NoAnswer(f"the parent process has not settled {len(reports)} reports") from None
            if answer["number"] == self._asked:  # an earlier answer may come late
                settled: Settled = from_wire(answer["settled"])
                return settled

    def _next(self) -> list[Performed]:
        first = self._get(None if not self._unsent else 0.0)
        if first is None:
            return []
        batch = [first]
        if self._in_flight.backlog > FLOOD:
            time.sleep(LINGER)
        while len(batch) < MOST_AT_ONCE and (following := self._get(0.0)) is not None:
            batch.append(following)
        return batch

    def _get(self, patience: float | None) -> Performed | None:
        try:
            if patience == 0.0:
                return self._inbox.get_nowait()
            return self._inbox.get(timeout=PAUSE if self.has_notes else TICK)
        except Empty:
            return None

    def _is_out_of_touch(self, performed: Performed) -> bool:
        """Return whether the lease of a run has expired by this host's clock: another run may have the job.

        If the keeper still tries to extend it, the next successful heartbeat shows whether the lease is lost. If it is,
        the report is recorded as a late outcome. If not, the run still holds its lease.
        """
        run = performed.run
        if run.clock() - run.granted_at <= FRESH or run.begun_at is None or performed.report is None:
            return False
        if run not in self._in_flight:
            return False
        run.look()
        return not run.lost and run.lease_remaining() <= 0

    def _dropped(self, waiting: list[Performed]) -> list[Performed]:
        for performed in waiting:
            log_lost(performed.run, "it had expired, so its report was discarded")
        self._in_flight.settled([performed.run for performed in waiting])
        return []

    def _conclude(self, over: list[Performed], settled: Settled) -> None:
        now = time.monotonic()
        self.refused += len(settled.lost)
        self._in_flight.settled([performed.run for performed in over])
        took = [
            (performed.ended_at or now) - performed.run.begun_at
            for performed in over
            if performed.run.begun_at is not None
        ]
        if took:
            self._in_flight.prefetch.learn(took)
        self._slot_freed()
        if settled.has_others:
            self._announce_retries(over, settled)
        self._run_events.add(over, settled)

    def _announce_retries(self, over: list[Performed], settled: Settled) -> None:
        """Tell this process about jobs that will run again, and other workers about jobs that can run at once."""
        ends = (Status.COMPLETED, Status.CANCELLED)  # a dead letter may have a hook
        again = {lease for lease, status in settled.accepted.items() if status not in ends}
        if not again:
            return
        self._due_again()
        now = {
            one.run.claim.queue
            for one in over
            if one.report is not None
            and one.report.lease in again
            and getattr(one.report.decision, "delay", None) == timedelta()
        }
        if now:
            self.database.call(wake_workers, self.database.alias, now)


@assembled
def _when_over() -> list[Callable[[WorkerDatabase, Callable[[], object]], bool]]:
    return [one.internals.when_over for one in installed() if one.internals.when_over is not None]


def _part_of(reports: list[Report]) -> list[Report]:
    """Return as many reports as fit into one message."""
    length = 0
    for place, report in enumerate(reports):
        length += len(getattr(report.decision, "result", None) or "") + len(report.progress or "")
        if place and (place == MOST_RELAYED or length > MOST_TEXT):
            return reports[:place]
    return reports
