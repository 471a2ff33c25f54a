"""Which values a setting of ``PULSE`` may have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from .limits import LONGEST_LEASE, MOST_ATTEMPTS, SHORTEST_LEASE

# The jobs table refuses payloads above 32 MiB (a CHECK), and jsonb may need six times the room of its text.
MAX_PAYLOAD_CEILING = 4_000_000


@dataclass(frozen=True, slots=True)
class Range:
    """What a setting may be."""

    least: Any
    most: Any
    why: str  # what breaks outside


RANGES = {
    "lease_ttl": Range(SHORTEST_LEASE, LONGEST_LEASE, "a lease must be longer than a round trip"),
    "heartbeat_interval": Range(
        timedelta(milliseconds=10), timedelta(hours=12), "a heartbeat must be shorter than a lease"
    ),
    "watchdog_interval": Range(timedelta(milliseconds=10), timedelta(days=1), "recovery waits for the next tick"),
    "keep_completed": Range(timedelta(), timedelta(days=36_500), "it cannot be negative"),
    "keep_cancelled": Range(timedelta(), timedelta(days=36_500), "it cannot be negative"),
    "keep_dead_letters": Range(timedelta(), timedelta(days=36_500), "it cannot be negative"),
    "overdue_after": Range(timedelta(seconds=1), timedelta(days=365), "a poll alone may take a second"),
    "poll_interval": Range(timedelta(milliseconds=10), timedelta(hours=1), "jobs wait for the next poll"),
    "max_attempts": Range(1, MOST_ATTEMPTS, "a job needs at least one run"),
    "max_losses": Range(1, MOST_ATTEMPTS, "a job must be able to run"),
    "max_payload_bytes": Range(100, MAX_PAYLOAD_CEILING, "the jobs table refuses larger rows"),
    "retry_backoff_cap": Range(timedelta(milliseconds=1), timedelta(days=365), "a pause must be positive and finite"),
    "unknown_task_delay": Range(timedelta(milliseconds=1), timedelta(days=1), "a shorter delay would be a tight loop"),
    "unknown_task_age": Range(timedelta(), timedelta(days=365), "the job must become a dead letter eventually"),
    "processes": Range(1, 256, "at least one process must run the jobs"),
    "concurrency": Range(1, 1_000, "each slot needs a thread and possibly a connection"),
    "grace": Range(timedelta(), timedelta(days=1), "a worker must stop eventually"),
    "max_jobs": Range(0, 2**31, "it cannot be negative"),
    "max_rss": Range(0, 2**31, "it cannot be negative"),
    "child_silence": Range(timedelta(seconds=2), timedelta(days=1), "a healthy process can be silent for a moment"),
    "ageing": Range(timedelta(), timedelta(days=365), "it cannot be negative"),
    "retry_jitter": Range(0.0, 1.0, "a delay cannot be negative"),
}
