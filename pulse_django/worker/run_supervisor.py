"""Supervises runs: which must stop, and which are settled without waiting for their handlers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pulse_django.execution.judging import Performed, judged
from pulse_django.execution.registry import registry
from pulse_django.execution.run import Run
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.outcomes import Cancelled, Outcome, Stalled, TimedOut

from .executors import Executor
from .in_flight import InFlight
from .in_flight_of_shards import InFlightOfShards
from .prefetch import HORIZON
from .run_logs import log_lost, log_out_of_touch

logger = SafeLogger("pulse_django.worker")

# Seconds for a handler that was asked to stop: after that it is abandoned, as a thread is.
PATIENCE_WITH_STOPPED = 1.0
# What was claimed and has not begun by then goes back: another worker may have a free slot.
LONGEST_WAIT_FOR_SLOT = 2.0


class RunSupervisor:
    """Looks at what a child has in hand, a few times a second."""

    def __init__(
        self,
        in_flight: InFlight | InFlightOfShards,
        executor_of: Callable[[Run], Executor],
        report: Callable[[Performed], object],
    ) -> None:
        self._in_flight, self._executor_of, self._report = in_flight, executor_of, report

    def look_after(self, runs: Sequence[Run], now: float) -> bool:
        """Judge each of them. Say whether some have waited for a slot for too long."""
        slow = waits_too_long = False
        for run in runs:
            run.look()
            if run.begun_at is None:
                waits_too_long = waits_too_long or now - run.waits_since > LONGEST_WAIT_FOR_SLOT
                continue
            slow = slow or now - run.begun_at > HORIZON
            if run.overdue(now) or run.stalled(now):
                self._in_flight.of(run).overstays(run)
            self._judge(run, now)
        if slow:
            self._in_flight.slow_down()
        return waits_too_long

    def _judge(self, run: Run, now: float) -> None:
        """End a run that must not go on, or that cannot be stopped."""
        remaining = run.lease_remaining()
        if run.reported or run.completed or not self._in_flight.of(run).is_active(run):
            return  # it ended meanwhile, and its entry belongs to another run
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
        elif not (run.cancelled and self._can_be_cancelled(run)):
            return
        else:
            run.verdict = Cancelled()
        run.asked_to_stop_at = now
        if not self._stop(run) and not run.is_out_of_touch:
            self._give_up(run)

    def _stack_of(self, run: Run) -> str:
        """Say where its handler is, before it is asked to stop."""
        try:
            return self._executor_of(run).stack_of(run.chunk or run)
        except Exception:  # the handler goes on meanwhile, and may change what is read
            logger.exception("Reading the stack of a handler failed")
            return ""

    def _can_be_cancelled(self, run: Run) -> bool:
        """A handler is stopped for a job of its chunk only if it is of no use to the others."""
        return self._executor_of(run).can_stop and (run.chunk is None or run.chunk.is_of_no_use())

    def _stop(self, run: Run) -> bool:
        """Have a handler stop: that of a chunk at the first time limit, or if it is of no use to any job."""
        if run.chunk is None:
            return self._executor_of(run).stop(run)
        must_stop = isinstance(run.verdict, TimedOut | Stalled) or run.chunk.is_of_no_use()
        return must_stop and self._executor_of(run).stop(run.chunk)

    def _await_word(self, run: Run, now: float, remaining: float) -> None:
        """A handler that did not stop goes on if a heartbeat succeeds after all: no other run has had its job."""
        if remaining > 0 and now - (run.asked_to_stop_at or now) > PATIENCE_WITH_STOPPED:
            run.asked_to_stop_at = None
            if not self._executor_of(run).can_stop:  # others may be cleaning up
                log_out_of_touch(run, "it was extended after all; the handler continues")

    def _give_up(self, run: Run) -> None:
        """Settle a run without its handler, which keeps its slot until it comes back, if it ever does."""
        verdict: Outcome | None = None if run.lost else run.verdict
        stuck_before = self._in_flight.stuck_slots
        if (
            not self._in_flight.of(run).given_up(run) or not run.is_first_report()
        ):  # it ended in this moment, and says so itself
            return
        if (stuck := self._in_flight.stuck_slots) > stuck_before:  # and not only a job of a chunk that goes on
            text = "job %d %r: the handler does not stop and keeps its slot (%d of %d are stuck)"
            logger.warning(text, run.claim.job_id, run.claim.task, stuck, self._in_flight.slots)
        if verdict is None:
            self._in_flight.of(run).settled([run])
        else:
            self._report(judged(run, registry.get(run.claim.task), verdict))
