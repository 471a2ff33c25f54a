"""What a condition is, and which there are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from pulse_django import conf


class Severity(StrEnum):
    BROKEN = "broken"  # the protocol rules it out: somebody wrote to the tables, or the server forgot a commit
    STUCK = "stuck"  # work waits that nobody will do unless somebody acts
    RISK = "risk"  # all goes on, and one day will not


class Subject(NamedTuple):
    """One thing that breaks a condition."""

    key: Any  # an id or a name, as its repair takes it
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """From where on something is too much; each a parameter of every question."""

    limit: int = 20  # subjects of one question
    sample: int = 2_000  # rows that a question looks at where it cannot look at all
    longest_lease: timedelta = timedelta(minutes=5)
    # Less, and a deploy looks like a trouble; more, and a trouble is seen later.
    overdue: timedelta = timedelta(minutes=5)
    silence: timedelta = timedelta(seconds=60)  # of a worker, until it counts as gone
    unreaped: timedelta = timedelta(seconds=60)  # after the end of a lease, when every watchdog should have seen it
    slack: timedelta = timedelta(seconds=2)  # between two readings of one clock
    # Autovacuum cannot remove a dead row that this old a transaction may still see.
    long_transaction: timedelta = timedelta(minutes=5)
    dead_rows: int = 50_000  # fewer are nobody's trouble, whatever their share
    dead_share: float = 0.5  # of the live ones; autovacuum is set to begin at a fiftieth

    @classmethod
    def of(cls, settings: conf.PulseSettings, **others: Any) -> Limits:
        """Take what depends on the project's settings from them."""
        derived = {
            "longest_lease": settings.longest_lease,
            "overdue": settings.overdue_after,
            "silence": settings.worker_silence,
            "unreaped": settings.unreaped_after,
        }
        return cls(**derived | others)

    def params(self) -> dict[str, Any]:
        return asdict(self)


class RepairRefused(Exception):
    """A repair that would do harm just now; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What mends a condition, a few subjects at a time."""

    says: str  # what it does, for the dry run
    act: Callable[[str, Sequence[Any]], int]  # alias and keys; returns how many it mended
    at_a_time: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One question. Its answer is what breaks it: rows of (key, words), at most ``%(limit)s`` of them."""

    name: str
    severity: Severity
    says: str  # what holds when all is well
    means: str  # what it means if it does not
    to_do: str  # for whoever reads it at night
    sql: str = ""
    look: Callable[[str, Limits], Iterable[Subject]] | None = None  # in place of SQL, with the alias
    repair: Repair | None = None

    def __post_init__(self) -> None:
        if (not self.sql) == (self.look is None):
            raise ValueError(f"{self.name}: give either sql or look")
        if self.sql and "%(limit)s" not in self.sql:
            raise ValueError(f"{self.name}: its SQL has no LIMIT %(limit)s, and could answer with a whole table")


_known: dict[str, Condition] = {}


def register(condition: Condition) -> Condition:
    """Have a condition be asked with all others."""
    if _known.get(condition.name, condition) != condition:
        raise ValueError(f"Condition {condition.name!r} is already registered.")
    _known[condition.name] = condition
    return condition


def known() -> list[Condition]:
    """Return all of them, what is worst first."""
    worst_first = list(Severity)
    return sorted(_known.values(), key=lambda one: (worst_first.index(one.severity), one.name))


def named(name: str) -> Condition:
    """Return one, or raise ``KeyError``."""
    return _known[name]
