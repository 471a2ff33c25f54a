"""Outages: times in which leases run out though their holders are well, because no heartbeat could be written.

The end of one is noticed by a write, and from then on holders get one lease of time for their heartbeats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pulse_django.store.database_errors import DatabaseFault, fault_of, sqlstate_of

READ_ONLY = "25006"
WAITED_IN_VAIN = frozenset({"55P03", "57014"})  # lock_timeout, statement_timeout


class Beats(Protocol):
    """How the heartbeats of this host fare."""

    failing_since: float  # by the monotonic clock; 0: they do not fail
    recovered_at: float  # when they last succeeded again after failing for a third of a lease


@dataclass(slots=True)
class Outages:
    """What one watchdog knows of them. Instants are the monotonic clock's."""

    beats: Beats | None = None
    trusts_leases_at: float = float("-inf")
    is_on: bool = False
    _is_long: bool = False  # no write was possible, for an unknown time
    _answered_at: float = float("-inf")

    def answered(self, now: float) -> None:
        """Note that a sweep found nothing in its way."""
        self._answered_at = now

    def failed(self, error: BaseException) -> None:
        """Note what kept a sweep from ending runs: it may keep others from extending leases."""
        fault, state = fault_of(error), sqlstate_of(error)
        if fault is DatabaseFault.FULL or state == READ_ONLY:  # what needed no room has succeeded meanwhile
            self.is_on = self._is_long = True
        elif state in WAITED_IN_VAIN:
            self.is_on = True

    def away(self) -> None:
        """Note that the database could not be reached."""
        self.is_on = self._is_long = True

    def over(self, now: float, ttl: float) -> float:
        """Note that writes succeed again. Return for how many seconds leases that ran out say nothing.

        After a wait that was shorter than half a lease none has run out: heartbeats come three times in a lease.
        """
        is_long, self.is_on, self._is_long = self._is_long or now - self._answered_at >= ttl / 2, False, False
        return ttl if is_long else 0.0

    def trusts_leases(self, now: float, ttl: float) -> bool:
        """Whether a lease that ran out says that its holder is gone."""
        if now < self.trusts_leases_at:
            return False
        return self.beats is None or (not self.beats.failing_since and now - self.beats.recovered_at >= ttl)
