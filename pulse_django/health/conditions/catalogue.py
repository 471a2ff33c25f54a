"""The class of conditions, and their registry."""

from __future__ import annotations

import json
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
    WARNING = "warning"
    HINT = "hint"

    @property
    def means(self) -> str:
        return {
            Severity.BROKEN: "The protocol rules this out: something else writes to the tables, or the server lost a "
            "commit.",
            Severity.STUCK: "Work waits, and will not be done unless a person acts.",
            Severity.FAILING: "Too much work fails.",
            Severity.RISK: "Work continues, but may stop one day. This is a warning: the fleet counts as healthy.",
            Severity.WARNING: "Advice on the database and the settings: a problem now or soon. Only "
            "`pulse_check --advice` checks it.",
            Severity.HINT: "Advice on the database and the settings: an improvement.",
        }[self]

    @property
    def is_problem(self) -> bool:
        """Return whether such a condition makes the fleet unhealthy and raises an alert by default."""
        return self in (Severity.BROKEN, Severity.STUCK, Severity.FAILING)

    @property
    def is_advice(self) -> bool:
        """Return whether only ``pulse_check --advice`` checks such a condition."""
        return self in (Severity.WARNING, Severity.HINT)


class About(StrEnum):
    """The kind of subjects of a condition. A key may also contain its kind, such as ``queue mail``."""

    JOB = "job"
    QUEUE = "queue"
    TASK = "task"
    WORKER = "worker"
    SCHEDULE = "schedule"
    LIMIT = "limit"
    OTHER = ""  # integer keys are ids of jobs


class Sentence(str):
    """A sentence in English. It keeps its form and its values, so that a page can translate it."""

    form: str
    values: Mapping[str, Any]

    def __new__(cls, form: str, values: Mapping[str, Any] | None = None) -> Sentence:
        said = super().__new__(cls, form % values if values else form)
        said.form, said.values = form, values or {}
        return said


class Subject(NamedTuple):
    """One object to which a condition applies, such as a job or a queue."""

    key: Any  # an id or a name, for the repair; of advice, None: the words are figures, and not a problem
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """The allowed number. ``PULSE["ALERTS"]`` can set another one under the name of the condition."""

    default: float
    unit: str  # text for the documentation
    most: float = 1e9  # maximum of the setting


def time_since(instant: str) -> str:
    """Return SQL for the time since an instant, in whole seconds."""
    return f"pg_catalog.date_trunc('second', statement_timestamp() - {instant})"


def as_json(sql: str, place: int = 0) -> str:
    """Return a query for the subjects of a condition of ours, as rows of the place and JSON."""
    return f"""
SELECT {place} AS place, pg_catalog.row_to_json(found)::text AS subject
FROM (SELECT * FROM ({sql}) AS asked (subject_key, sentence_form) LIMIT %(limit)s) AS found"""


def subject_of(row: str) -> Subject:
    """Return the subject of a row of ``as_json``: its key, the form of a sentence, and the values by name."""
    values = json.loads(row)
    key, form = values.pop("subject_key"), values.pop("sentence_form")
    return Subject(key, Sentence(form or "", {name: "" if value is None else value for name, value in values.items()}))


FOR_EVER = timedelta(days=36_500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The parameters of all queries."""

    limit: int = 20  # subjects of one condition
    sample: int = 2_000  # rows that a query reads if it cannot read all
    longest_lease: timedelta = timedelta(minutes=5)
    # Shorter, and a deploy looks like a problem; longer, and a problem is detected later.
    overdue: timedelta = timedelta(minutes=5)
    silence: timedelta = timedelta(seconds=60)  # without heartbeats, after which a worker counts as gone
    unreaped: timedelta = timedelta(seconds=60)  # after the end of a lease, by when a watchdog should have reaped it
    slack: timedelta = timedelta(seconds=2)  # between two readings of one clock
    # Autovacuum cannot remove dead rows that an old transaction may still see.
    long_transaction: timedelta = timedelta(minutes=5)
    dead_rows: int = 50_000  # fewer are harmless, even with a high share
    dead_share: float = 0.5  # of the live rows; autovacuum is set to start at a fiftieth
    # Shorter, and a rare task has too few runs to judge; longer, and a fixed task is reported for too long.
    lately: timedelta = timedelta(minutes=15)
    few_runs: int = 10  # with fewer, a rate has no meaning
    unrecorded: timedelta = FRESH
    kept: timedelta = FOR_EVER  # older completed and cancelled jobs may be partly deleted
    thresholds: Mapping[str, float] = field(default_factory=dict)  # by condition; others have the default

    @classmethod
    def of(cls, settings: conf.PulseSettings, **others: Any) -> Limits:
        """Create limits with the values of the project's settings."""
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
        """Return the threshold of a condition, or None if it has none."""
        if condition.threshold is None:
            return None
        return self.thresholds.get(condition.name, condition.threshold.default)

    def params(self) -> dict[str, Any]:
        """Return the parameters of the queries. A threshold has the name of its condition: ``%(dead_letters)s``."""
        values = asdict(self)
        del values["thresholds"]
        measured = [one for one in known() if one.threshold is not None]
        return values | {one.name.replace("-", "_"): self.allowed(one) for one in measured}


class CannotTell(Exception):
    """There are too few facts to check the condition. The message says which."""


class RepairRefused(Exception):
    """The repair would do harm now. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repair:
    """The repair of a condition, which handles a few subjects at a time."""

    says: str  # its effect, for the dry run
    act: Callable[[str, Sequence[Any]], int]  # called with alias and keys; returns the number of repaired subjects
    at_a_time: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition. Its query returns its subjects as rows of (key, words), at most ``%(limit)s``.

    In the query of a condition of ours or of a capability, the words are the form of a sentence. The other columns have
    the names and the values of its places. The limit is added to the query.
    """

    name: str
    severity: Severity
    says: str  # true while the condition is clear
    means: str  # the meaning and cause if it is found
    to_do: str
    page: str = "reference/conditions.md"  # of the documentation, with the remedy
    about: About = About.OTHER
    sql: str = ""
    look: Callable[[str, Limits], Iterable[Subject]] | None = None  # instead of SQL; called with the alias
    threshold: Threshold | None = None
    repair: Repair | None = None

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is not a name for a condition: use lowercase words, joined by hyphens")
        if self.threshold is not None and self.name.replace("-", "_") in Limits.__slots__:
            raise ValueError(f"{self.name!r} has a threshold, but is a parameter of Limits: rename the condition")
        ways = [way for way in (self.sql, self.look) if way]
        if len(ways) != 1:
            raise ValueError(f"{self.name}: give either sql or look")

    def refuses(self, allowed: float) -> str:
        """Return why a number cannot be its threshold, or "" if it can."""
        if self.threshold is None:
            return "but this condition has no threshold: use True or False"
        if not 0 <= allowed <= self.threshold.most:
            return f"but it must be from 0 to {self.threshold.most:g}"
        return ""

    def is_alerted(self, settings: conf.PulseSettings) -> bool:
        """Return whether it raises an alert: as in ``PULSE["ALERTS"]``, or else if it is a problem."""
        wanted = settings.alerts.get(self.name, self.severity.is_problem)
        return wanted is not False


_known: dict[str, Condition] = {}  # of ``health`` and of apps
OURS: set[str] = set()  # the names of conditions of ``health``


def add_ours(*conditions: Condition) -> None:
    """Add conditions of ``health``, whose queries get their limit when they are sent."""
    for one in conditions:
        _known[one.name] = one
        OURS.add(one.name)


def register(condition: Condition) -> Condition:
    """Add a condition to the catalogue."""
    if condition.sql and "%(limit)s" not in condition.sql:
        raise ValueError(f"{condition.name}: its SQL could return a whole table: add LIMIT %(limit)s")
    if _known.get(condition.name, condition) != condition:
        raise ValueError(f"Condition {condition.name!r} is already registered: choose another name.")
    _known[condition.name] = condition
    return condition


def known(*, advice: bool = False) -> list[Condition]:
    """Return all conditions, the worst first. Those that are advice are added if ``advice`` is true."""
    worst_first = list(Severity)
    of_capabilities = {condition.name: condition for one in installed() for condition in one.conditions}
    wanted = [one for one in (of_capabilities | _known).values() if advice or not one.severity.is_advice]
    return sorted(wanted, key=lambda one: (worst_first.index(one.severity), one.name))


def named(name: str) -> Condition:
    """Return the condition with this name, or raise ``KeyError``."""
    return {one.name: one for one in known(advice=True)}[name]


def is_ours(condition: Condition) -> bool:
    """Return whether Pulse or a capability defines the condition. Its SQL may use the shared queries."""
    return _known.get(condition.name) is not condition or condition.name in OURS
