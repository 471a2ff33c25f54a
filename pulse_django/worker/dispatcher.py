"""Takes what was claimed to the executors, and what is over to the reporter."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from pulse_django import conf
from pulse_django.execution.chunk_run import ChunkRun
from pulse_django.execution.judging import Performed, judged
from pulse_django.execution.run import Clock, Run
from pulse_django.words.decisions import Postpone
from pulse_django.words.outcomes import Released
from pulse_django.words.verb_results import Report

from .chunking import Chunking
from .executors import Begin, Done
from .executors.choice import Executors
from .in_flight import InFlight
from .in_flight_of_shards import InFlightOfShards
from .run_logs import log_lost

OVERTAKING = "an earlier run of this job has not ended in this worker"
NOT_STARTED = timedelta(seconds=1)  # until what could not be started is tried again
NOW = float("inf")


class Dispatcher:
    """Several threads call it: those that claim, and those of the executors."""

    def __init__(
        self,
        in_flight: InFlight | InFlightOfShards,
        make_executors: Callable[[Begin, Done], Executors],
        report: Callable[[Performed], object],
        slot_freed: Callable[[], object],
        clock: Clock = time.monotonic,
    ) -> None:
        self._in_flight, self._report, self._slot_freed, self._clock = in_flight, report, slot_freed, clock
        self._chunking = Chunking(in_flight, self.done, clock)
        self.executors = make_executors(self.begin, self.done)

    def start(self, runs: Sequence[Run]) -> None:
        """Run these as slots become free; those of tasks with chunks when they are gathered."""
        self._submit(self._chunking.add(runs))

    def start_due(self) -> None:
        """Run the chunks whose time has come. Call it often while ``due_in`` says so."""
        if chunks := self._chunking.due():
            self._submit(chunks)

    def due_in(self) -> float:
        """Return in how many seconds ``start_due`` has something to do."""
        return self._chunking.due_in()

    def begin(self, run: Run) -> bool:
        """Say whether a handler may be called. Members of a chunk that may not begin are left out."""
        if not isinstance(run, ChunkRun):
            return self._in_flight.of(run).begin(run)
        members, run.begun_at = run.members, self._clock()
        run.members = [one for one in members if self._in_flight.of(one).begin(one)]
        for one in members:
            if one.begun_at is None:
                self.done(one, None)
        return bool(run.members)

    def done(self, run: Run, performed: Performed | None) -> None:
        """Take over a run whose handler is over, or was never called; or a member of a chunk that is decided."""
        if isinstance(run, ChunkRun):
            self._chunk_done(run, performed)
        else:
            self._run_done(run, performed)
        self._slot_freed()

    def give_back(self, since: float = NOW) -> None:
        """Hand back what has waited for a slot since then. If no instant is given, hand back all that has not begun."""
        for run in self.executors.take_back(since):
            self._not_started(run)
        if since == NOW:
            for run in self._chunking.take_back():
                self._release(run)

    def _submit(self, runs: Sequence[Run]) -> None:
        for run in self.executors.submit(runs):
            self._not_started(run, NOT_STARTED)

    def _not_started(self, run: Run, delay: timedelta = timedelta()) -> None:
        if not isinstance(run, ChunkRun):
            self._release(run, delay)
            return
        for one in run.members:
            self._release(one, delay)
        self._in_flight.of(run).vacate(run)

    def _run_done(self, run: Run, performed: Performed | None) -> None:
        self._in_flight.of(run).ended(run)
        if performed is None:
            self._not_begun(run)
        elif run.is_first_report() or performed.report is not None:
            self._report(performed)

    def _chunk_done(self, chunk: ChunkRun, performed: Performed | None) -> None:
        for one in performed.members if performed is not None else ():
            self._run_done(one.run, one)
        if performed is not None and performed.report is not None:  # something else than the handler failed
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
        elif not run.reported:  # its time was up before it had a slot
            self._release(run)

    def _release(self, run: Run, delay: timedelta = timedelta(), why: str = "") -> None:
        """Hand a job back that has not begun. The attempt is refunded."""
        self._in_flight.of(run).ended(run)
        if run.is_first_report():
            self._report(Performed(run, None, Report(run.claim.lease, Released(delay, why), Postpone(delay, why))))
