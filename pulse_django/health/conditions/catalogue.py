"""What a condition is, and which there are."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from pulse_django import conf
from pulse_django.metrics.history import FRESH
from pulse_django.queue.capability import installed

_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")


class Severity(StrEnum):
    BROKEN = "broken"
    STUCK = "stuck"
    FAILING = "failing"
    RISK = "risk"

    @property
    def means(self) -> str:
        return {
            Severity.BROKEN: "The protocol rules this out: something else writes to the tables, or the server lost a "
            "commit.",
            Severity.STUCK: "Work waits, and will not be done unless a person acts.",
            Severity.FAILING: "Work is tried, and too much of it fails.",
            Severity.RISK: "Work goes on, and one day will not. This is a warning: the fleet counts as healthy.",
        }[self]

    @property
    def is_problem(self) -> bool:
        """Whether such a condition makes the fleet unhealthy and raises an alert by default."""
        return self is not Severity.RISK


class About(StrEnum):
    """What the keys of a condition's subjects name. A key may say it itself, as ``queue mail``."""

    JOB = "job"
    QUEUE = "queue"
    TASK = "task"
    WORKER = "worker"
    SCHEDULE = "schedule"
    LIMIT = "limit"
    OTHER = ""  # numbers are ids of jobs


class Subject(NamedTuple):
    """One thing to which a condition applies."""

    key: Any  # an id or a name, as its repair takes it
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """How much is allowed. ``PULSE["ALERTS"]`` sets another number, under the name of the condition."""

    default: float
    unit: str  # in words, for the documentation
    most: float = 1e9  # that the setting may allow


FOR_EVER = timedelta(days=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The parameters of every question."""

    limit: int = 20  # subjects of one question
    sample: int = 2_000  # rows that a question reads where it cannot read all
    longest_lease: timedelta = timedelta(minutes=5)
    # Less, and a deploy looks like a problem; more, and a problem is seen later.
    overdue: timedelta = timedelta(minutes=5)
    silence: timedelta = timedelta(seconds=60)  # of a worker, until it counts as gone
    unreaped: timedelta = timedelta(seconds=60)  # after the end of a lease, when every watchdog should have seen it
    slack: timedelta = timedelta(seconds=2)  # between two readings of one clock
    # Autovacuum cannot remove a dead row that so old a transaction may still see.
    long_transaction: timedelta = timedelta(minutes=5)
    dead_rows: int = 50_000  # fewer do no harm, whatever their share
    dead_share: float = 0.5  # of the live ones; autovacuum is set to begin at a fiftieth
    # Shorter, and a quiet task has too few runs to judge; longer, and a fixed task stays red.
    lately: timedelta = timedelta(minutes=15)
    few_runs: int = 10  # fewer say nothing about a rate
    unrecorded: timedelta = FRESH
    kept: timedelta = FOR_EVER  # completed and cancelled jobs that are older may be in the middle of being deleted
    thresholds: Mapping[str, float] = field(default_factory=dict)  # by condition; others have their default

    @classmethod
    def of(cls, settings: conf.PulseSettings, **others: Any) -> Limits:
        """Take what depends on the project's settings from them."""
        derived: dict[str, Any] = {
            "longest_lease": settings.longest_lease,
            "overdue": settings.overdue_after,
            "silence": settings.worker_silence,
            "unreaped": settings.unreaped_after,
            "kept": settings.retention_of_days or FOR_EVER,
            "thresholds": {name: most for name, most in settings.alerts.items() if not isinstance(most, bool)},
        }
        return cls(**derived | others)

    def allowed(self, condition: Condition) -> float | None:
        """Return how much of it is allowed. None: a condition without a threshold."""
        if condition.threshold is None:
            return None
        return self.thresholds.get(condition.name, condition.threshold.default)

    def params(self) -> dict[str, Any]:
        """Return the parameters of the questions. A threshold is named like its condition: ``%(dead_letters)s``."""
        values = asdict(self)
        del values["thresholds"]
        measured = [one for one in known() if one.threshold is not None]
        return values | {one.name.replace("-", "_"): self.allowed(one) for one in measured}


class RepairRefused(Exception):
    """A repair that would do harm now; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """What repairs a condition, a few subjects at a time."""

    says: str  # what it does, for the dry run
    act: Callable[[str, Sequence[Any]], int]  # alias and keys; returns how many it repaired
    at_a_time: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One question. Its answer is what it applies to: rows of (key, words), at most ``%(limit)s`` of them."""

    name: str
    severity: Severity
    says: str  # what is true when all is well
    means: str  # what it means if it is not
    to_do: str
    page: str = "reference/conditions.md"  # of the documentation, with the remedy
    about: About = About.OTHER
    sql: str = ""
    look: Callable[[str, Limits], Iterable[Subject]] | None = None  # in place of SQL, with the alias
    # In place of both on Citus, where what the server knows and what the tables hold is on different servers.
    look_on_citus: Callable[[str, Limits], Iterable[Subject]] | None = None
    threshold: Threshold | None = None
    repair: Repair | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} cannot name a condition: use words in lower case, joined by hyphens")
        if self.threshold is not None and self.name.replace("-", "_") in Limits.__slots__:
            raise ValueError(f"{self.name!r} has a threshold, and Limits has a parameter of that name")
        if (not self.sql) == (self.look is None):
            raise ValueError(f"{self.name}: give either sql or look")
        if self.sql and "%(limit)s" not in self.sql:
            raise ValueError(f"{self.name}: its SQL has no LIMIT %(limit)s, and could answer with a whole table")

    def refuses(self, allowed: float) -> str:
        """Say why that number cannot be its threshold. Empty: it can."""
        if self.threshold is None:
            return "but this condition has no threshold: use True or False"
        if not 0 <= allowed <= self.threshold.most:
            return f"but at most {self.threshold.most:g} makes sense"
        return ""

    def is_alerted(self, settings: conf.PulseSettings) -> bool:
        """Whether it raises an alert: by ``PULSE["ALERTS"]``, or else if it is a problem."""
        wanted = settings.alerts.get(self.name, self.severity.is_problem)
        return wanted is not False


_known: dict[str, Condition] = {}
OURS: set[str] = set()  # the names of those of health


def register(condition: Condition) -> Condition:
    """Add a condition to the catalogue."""
    if _known.get(condition.name, condition) != condition:
        raise ValueError(f"Condition {condition.name!r} is already registered.")
    _known[condition.name] = condition
    return condition


def known() -> list[Condition]:
    """Return all of them, the worst first."""
    worst_first = list(Severity)
    of_capabilities = {condition.name: condition for one in installed() for condition in one.conditions}
    all_of_them = (of_capabilities | _known).values()
    return sorted(all_of_them, key=lambda one: (worst_first.index(one.severity), one.name))


def named(name: str) -> Condition:
    """Return one, or raise ``KeyError``."""
    return {one.name: one for one in known()}[name]


def is_ours(condition: Condition) -> bool:
    """Whether it is Pulse's own, or that of a capability. Its SQL may read the shared queries."""
    return _known.get(condition.name) is not condition or condition.name in OURS
