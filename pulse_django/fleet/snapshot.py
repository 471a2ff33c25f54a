"""Facts about the fleet that commands print and the admin shows. Ages are by the clock of the database."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from .known_queues import PerMinute


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    name: str
    due: int = 0  # wait, and their time has come
    later: int = 0  # wait for their time, or are set aside because their task is paused
    running: int = 0
    oldest_due: timedelta | None = None  # for how long the first of them has been due
    is_more: bool = False  # than was counted
    is_paused: bool = False
    pause_reason: str = ""
    paused_until: datetime | None = None  # None: until it is resumed
    dead: int = 0  # dead letters, counted up to a bound
    is_more_dead: bool = False  # than were counted
    per_minute: PerMinute | None = None  # None: no minute was recorded lately

    @property
    def dead_in_words(self) -> str:
        return f"{self.dead}{'+' if self.is_more_dead else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusCount:
    status: str
    jobs: int
    is_estimate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFacts:
    id: int
    name: str
    boot_id: str
    host: str
    pid: int
    queues: tuple[str, ...]  # empty: all
    slots: int
    in_flight: int
    stuck_slots: int
    prefetched: int  # claimed and not begun
    last_beat: timedelta  # ago
    has_stopped: bool  # or is lost
    is_lost: bool  # and not acknowledged
    versions: dict[str, str]

    def is_alive(self, silence: timedelta) -> bool:
        return not self.has_stopped and self.last_beat <= silence


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFacts:
    id: int
    task: str
    queue: str
    error: str  # its first line
    age: timedelta


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowCounts:
    """How many there are, each counted up to a bound."""

    open: int = 0  # batches that are not over
    held: int = 0  # of these, by dead letters
    waiting: int = 0  # jobs that wait for others


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    queues: tuple[QueueFacts, ...]
    statuses: tuple[StatusCount, ...]
    workers: tuple[WorkerFacts, ...]
    dead_letters: tuple[DeadLetterFacts, ...]  # the latest
    expired_leases: int  # expired and not reaped
    oldest_expired: timedelta | None
    workflows: WorkflowCounts = WorkflowCounts()
