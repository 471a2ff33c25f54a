"""Facts about a job and its environment. Each class is one row of one statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pulse_django.queue.words.lane_keys import key_of
from pulse_django.queue.words.states import CLAIMABLE, Status


class ShutGate(NamedTuple):
    """A gate that prevents the job from starting."""

    code: str
    opens_at: datetime | None  # None: unknown
    reason: str | None
    shut_by: str | None


class JobFacts(NamedTuple):
    """A job, its queue, and the workers that can run it. Instants and comparisons use the server's clock."""

    now: datetime
    id: int
    task: str
    queue: str
    priority: int
    weight: int
    lane_key: str
    is_ready: bool | None  # None: it is set aside
    status: str
    is_due: bool
    next_run_at: datetime
    expires_at: datetime | None  # None: it cannot expire
    cancel_requested_at: datetime | None
    locked_by: str | None
    started_at: datetime | None
    lease_until: datetime | None
    is_lease_expired: bool | None
    finished_at: datetime | None
    shut: list[ShutGate]
    put_back: str  # why the last worker put it back; empty: it did not
    serving: int  # live workers of its queue
    able: int  # workers of these that have its task, or have not reported their tasks
    slots: int  # of the able workers
    free: int  # free slots of these
    roomiest: int  # the maximum of free slots of one worker
    has_room: bool  # one worker has enough free slots for the weight, or all its slots are free

    @property
    def is_expired(self) -> bool:
        return any(gate.code == "expired" for gate in self.shut)

    @property
    def key(self) -> str | None:
        return key_of(self.lane_key)

    @property
    def waits(self) -> bool:
        return Status(self.status) in CLAIMABLE


class LineFacts(NamedTuple):
    """Numbers of due jobs by position, each up to a bound."""

    higher: int  # with a higher priority in the queue
    own: int  # before it in its lane
    beside: int  # in other lanes of its queue and priority


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceFacts:
    """Measurements of the last minutes."""

    starts: list[float]  # of the queue, in each minute with a backlog
    run_seconds: float | None  # the p95 of runs of the task
