"""The results of the verbs. Zero rows is a result too: a lease that was lost, or a change that came too late."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple, Self

from .decisions import Decision
from .display import without
from .leases import Lease
from .outcomes import Outcome, OutcomeName
from .states import EndedBy, Ending, Status, run_ended


class Report(NamedTuple):
    """What a holder says of one of its runs: the lease, what happened, and what is to be done."""

    lease: Lease
    outcome: Outcome
    decision: Decision
    progress: str | None = None  # JSON that no heartbeat has carried yet

    def __repr__(self) -> str:
        return without(self, "progress")


class _Sets:
    """Answers that can be added up: each field is a union."""

    __slots__ = ()

    def __or__(self, other: Self) -> Self:
        names = [one.name for one in fields(self)]  # type: ignore[arg-type]  # each of these is a dataclass
        return type(self)(**{name: getattr(self, name) | getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(_Sets):
    """The answer to a settle. Every reported lease is in exactly one of the four."""

    accepted: Mapping[Lease, Status]  # the report ended the run; the status that the job has now
    repeated: frozenset[Lease]  # the same outcome stood in the ledger already, as when an answer is lost on its way
    lost: frozenset[Lease]  # the job had moved on: nothing changed; the first such verdict is kept as ``late_outcome``
    skipped: frozenset[Lease] = frozenset()  # another statement had locked the row: report again soon
    has_notes: bool = False  # other jobs may wait for one of these: resolve after the commit
    has_others: bool = field(default=True, compare=False)  # False: each report completed its job, as in most batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The answer to a heartbeat. Every lease is in exactly one of ``alive``, ``lost`` and ``skipped``."""

    alive: frozenset[Lease]  # extended by one TTL
    lost: frozenset[Lease]  # the job belongs to another run: stop the handler, report nothing
    skipped: frozenset[Lease]  # another statement had locked its row: beat again soon, do not give up
    cancelled: frozenset[Lease]  # those of ``alive`` whose job was asked to stop


@dataclass(frozen=True, slots=True)
class Reaped:
    """One run that a watchdog ended."""

    lease: Lease
    token: int
    outcome: OutcomeName
    status: Status  # what the job is now
    task: str
    queue: str
    reason: str

    @property
    def ending(self) -> Ending | None:
        """The end of the job, if the run was its last."""
        return run_ended(
            self, self.lease, status=self.status, by=EndedBy.WATCHDOG, outcome=self.outcome, reason=self.reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(_Sets):
    """The answer to a request to cancel. It is true if it changed a job."""

    cancelled: frozenset[int]  # were waiting, are CANCELLED now
    asked: frozenset[int]  # are running; their handlers learn of it with the next heartbeat
    refused: frozenset[int]  # ended already, were asked before, or do not exist

    def __bool__(self) -> bool:
        return bool(self.cancelled or self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The answer to a change of jobs that wait. It is true if it changed a job."""

    changed: frozenset[int]
    moved_on: frozenset[int]  # did not wait any more, or do not exist

    def __bool__(self) -> bool:
        return bool(self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(_Sets):
    """The answer to a retry of dead letters. It is true if one will run again."""

    revived: frozenset[int]  # will run again
    moved_on: frozenset[int]  # were no dead letters any more, do not exist, or are of Pulse's own tasks
    key_taken: frozenset[int] = frozenset()  # are dead letters still: another job holds their unique key
    of_cancelled: frozenset[int] = frozenset()  # are dead letters still: their batch was cancelled

    def __bool__(self) -> bool:
        return bool(self.revived)
