"""How fast the demo goes: a fleet's constants, scaled to be short, or as they are in production."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPace:
    """Seconds. The work of the jobs is measured in them, so that the story is the same at any pace."""

    ttl: float  # of a lease
    beat: float  # between two heartbeats
    tick: float  # between two looks of a watchdog

    @property
    def settings(self) -> dict[str, Any]:
        """What the demo's workers have in PULSE, whatever the project says."""
        return {
            "LEASE_TTL": self.ttl,
            "HEARTBEAT_INTERVAL": self.beat,
            "WATCHDOG_INTERVAL": self.tick,
            "POLL_INTERVAL": 0.25,
            "PROCESSES": 1,
            "CONCURRENCY": 4,
            "MAX_JOBS": 0,
            "MAX_RSS_MIB": 0,
            "MAX_ATTEMPTS": 10,
            "MAX_LOST_WORKERS": 5,
            "RETRY_BACKOFF_CAP": 60,
            "RETRY_JITTER": 0.1,
            # Their watchdogs leave the project's own jobs alone.
            "KEEP_COMPLETED": 0,
            "KEEP_CANCELLED": 0,
            "KEEP_DEAD_LETTERS": 0,
            "UNKNOWN_TASK_AGE": 365 * 24 * 3600,
        }

    @property
    def worst_case(self) -> float:
        """From the death of a worker to its jobs being seen to."""
        return self.ttl + self.tick

    @property
    def short_work(self) -> float:
        """Long enough for a beat to carry progress into the table, and for something to be left to do."""
        return 3.0 * self.beat

    @property
    def long_work(self) -> float:
        """Several leases long."""
        return 3.5 * self.ttl

    @property
    def nap(self) -> float:
        """Longer than a beat, so that the worker can be frozen in it; shorter only costs the demo its margin."""
        return self.ttl

    @property
    def patience(self) -> float:
        """With anything that should happen. Much longer than it takes: the machine may be busy."""
        return 20.0 + 2 * self.worst_case + self.long_work


SCALED = DemoPace(ttl=3.0, beat=1.0, tick=0.5)
REAL_TIME = DemoPace(ttl=30.0, beat=10.0, tick=10.0)  # the defaults
