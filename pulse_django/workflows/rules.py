"""The needs of a job, which it waits for before it may run: other jobs, batches, events."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from pulse_django.queue.words.states import Status

MAX_NODE_NAME = 100
MAX_EVENT_NAME = 200
MOST_NESTED = 50  # workflows, or lists, within others
MAX_BATCH_NAME, MAX_BATCH_KIND = 200, 16


class OnNeedFailed(StrEnum):
    """What to do with a job when one that it needs becomes a dead letter."""

    WAIT = "wait"  # it waits until the dead letter is retried and completes
    CANCEL = "cancel"  # it is cancelled, and so are the jobs that need it
    CONTINUE = "continue"  # it runs; its results name the dead jobs


class When(StrEnum):
    """The moment of a batch that a job waits for."""

    FINISHED = "finished"  # every member has ended, and none is a dead letter
    DEAD = "dead"  # the first member became a dead letter
    ENDED = "ended"  # every member has ended or is a dead letter


class Met(StrEnum):
    """How a need was met."""

    DONE = "done"
    DEAD = "dead"  # by a dead letter
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"  # the event did not arrive in time


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """One thing that a job waits for: a job, a batch or an event."""

    job_id: int | None = None
    batch_id: int | None = None
    event: str | None = None
    name: str = ""  # under which the job finds the result
    on_need_failed: OnNeedFailed = OnNeedFailed.WAIT
    when: When = When.FINISHED  # of a batch
    timeout: float | None = None  # seconds, of an event


class Place(NamedTuple):
    """The place of a new job in a workflow."""

    batch_id: int | None = None
    node: str | None = None  # its name in its workflow
    awaited: bool = False  # another job needs it
    waits: bool = False  # it needs others

    def by_column(self) -> dict[str, object]:
        """Return the values of the columns of the row."""
        status = Status.WAITING if self.waits else Status.PENDING
        return {"batch_id": self.batch_id, "node": self.node, "awaited": self.awaited, "status": str(status)}
