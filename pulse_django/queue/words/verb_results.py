"""The results of the verbs. Zero rows are also a result: a lost lease, or a change that came too late."""

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
    """A holder's report on one of its runs: the lease, the outcome and the decision."""

    lease: Lease
    outcome: Outcome
    decision: Decision
    progress: str | None = None  # JSON that no heartbeat has saved yet

    def __repr__(self) -> str:
        return without(self, "progress")


class _Sets:
    """Base class of results that can be combined with ``|``, field by field."""

    __slots__ = ()

    def __or__(self, other: Self) -> Self:
        names = [one.name for one in fields(self)]  # type: ignore[arg-type]  # each of these is a dataclass
        return type(self)(**{name: getattr(self, name) | getattr(other, name) for name in names})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled(_Sets):
    """The result of a settle. Every reported lease is in exactly one of the first four."""

    accepted: Mapping[Lease, Status]  # the report ended the run; with the new status of the job
    repeated: frozenset[Lease]  # the ledger had this outcome already, as after a lost answer
    lost: frozenset[Lease]  # the job had moved on: only the first late outcome is recorded
    skipped: frozenset[Lease] = frozenset()  # the row was locked by another statement: report again soon
    has_notes: bool = False  # other jobs may wait for one of these
    has_others: bool = field(default=True, compare=False)  # False: every report completed its job, as in most batches


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """The result of a heartbeat. Every lease is in exactly one of ``alive``, ``lost`` and ``skipped``."""

    alive: frozenset[Lease]  # extended by one TTL
    lost: frozenset[Lease]  # the job belongs to another run: stop the handler, report nothing
    skipped: frozenset[Lease]  # the row was locked by another statement: try again soon
    cancelled: frozenset[Lease]  # leases in ``alive`` whose job was asked to stop


@dataclass(frozen=True, slots=True)
class Reaped:
    """One run that a watchdog ended."""

    lease: Lease
    token: int
    outcome: OutcomeName
    status: Status  # the new status of the job
    task: str
    queue: str
    reason: str

    @property
    def ending(self) -> Ending | None:
        """Return the end of the job if the run was its last one, or None."""
        return run_ended(
            self, self.lease, status=self.status, by=EndedBy.WATCHDOG, outcome=self.outcome, reason=self.reason
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested(_Sets):
    """The result of ``request_cancel``. It is true if a job was changed."""

    cancelled: frozenset[int]  # were waiting, and are CANCELLED now
    asked: frozenset[int]  # are running; their workers see the request with the next heartbeat
    refused: frozenset[int]  # had ended, were asked before, or do not exist

    def __bool__(self) -> bool:
        return bool(self.cancelled or self.asked)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    """The result of a change of waiting jobs. It is true if a job was changed."""

    changed: frozenset[int]
    moved_on: frozenset[int]  # were not waiting any more, or do not exist

    def __bool__(self) -> bool:
        return bool(self.changed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retried(_Sets):
    """The result of a retry of dead letters. It is true if a job will run again."""

    revived: frozenset[int]  # will run again
    moved_on: frozenset[int]  # were not dead letters any more, do not exist, or are of Pulse's own tasks
    key_taken: frozenset[int] = frozenset()  # are still dead letters: another job holds their unique key
    of_cancelled: frozenset[int] = frozenset()  # are still dead letters: their batch was cancelled

    def __bool__(self) -> bool:
        return bool(self.revived)
