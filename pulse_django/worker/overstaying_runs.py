"""Runs of a child that are past their deadlines and go on: meanwhile no other run of their jobs begins here."""

from __future__ import annotations

import time

from pulse_django.execution.run import Run

from .shared_leases import SharedLeases

# Seconds for which a retry waits for the thread of the run before. Shorter kills threads that would have ended; longer
# keeps the job of a thread that never ends.
PATIENCE_WITH_OVERSTAYERS = 30.0


class OverstayingRuns:
    """What is changed here is changed under the lock of the ``InFlight`` that it is a part of."""

    def __init__(self, shared_leases: SharedLeases) -> None:
        self._runs: dict[int, Run] = {}
        self._retry_waits_since = float("inf")  # for one of them to end
        self._shared_leases = shared_leases

    def add(self, run: Run) -> None:
        if id(run) not in self._runs:
            self._runs[id(run)] = run
            self._shared_leases.overstayers.add(self._shared_leases.index, run.claim.job_id)

    def ended(self, run: Run) -> None:
        if self._runs.pop(id(run), None) is not None:
            self._shared_leases.overstayers.remove(self._shared_leases.index, run.claim.job_id)
            self._retry_waits_since = float("inf")

    def block(self, run: Run) -> bool:
        """Whether a handler of an earlier run of the same job goes on in this worker though its time is up."""
        if run.claim.attempt == 1 or run.claim.job_id not in self._shared_leases.overstayers:
            return False
        if any(one.claim.job_id == run.claim.job_id for one in list(self._runs.values())):
            self._retry_waits_since = min(self._retry_waits_since, time.monotonic())
        return True

    def have_blocked_for_long(self, now: float) -> bool:
        return bool(self._runs) and now - self._retry_waits_since > PATIENCE_WITH_OVERSTAYERS
