"""What is read of a job and of what it waits for. Each is one row of one statement."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from pulse_django.queue.words.lane_keys import key_of
from pulse_django.queue.words.states import CLAIMABLE, Status


class ShutGate(NamedTuple):
    """A condition of its start that is not fulfilled."""

    code: str
    opens_at: datetime | None  # None: that is not known
    reason: str | None
    shut_by: str | None


class JobFacts(NamedTuple):
    """A job, its queue, and the workers that may run it. Instants and comparisons are by the server's clock."""

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
    expires_at: datetime | None  # None: it cannot expire any more
    cancel_requested_at: datetime | None
    locked_by: str | None
    started_at: datetime | None
    lease_until: datetime | None
    is_lease_expired: bool | None
    finished_at: datetime | None
    shut: list[ShutGate]
    put_back: str  # why the worker that claimed it last put it back; empty: it did not
    serving: int  # live workers of its queue
    able: int  # those of them that know its task, or have not said which they know
    slots: int  # of those that are able
    free: int  # of these slots
    roomiest: int  # the most free slots that one of them has
    has_room: bool  # one of them has as many free slots as the job weighs, or all

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
    """Due jobs by their place, each kind up to a bound."""

    higher: int  # of higher priority in the queue
    own: int  # before it in its lane
    beside: int  # in other lanes of its queue and priority


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceFacts:
    """What was measured in the latest minutes."""

    starts: list[float]  # of the queue, in each minute in which it had a backlog
    run_seconds: float | None  # that nearly all runs of the task took at most
