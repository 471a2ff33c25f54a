"""Ask the conditions: all in one statement, and if that fails, one after the other."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import DatabaseError, connections, transaction

from pulse_django import conf
from pulse_django.safe_logging import SafeLogger
from pulse_django.words.display import inert
from pulse_django.words.payloads import error_in_one_line

from .catalogue import Condition, Limits, Subject, known

logger = SafeLogger("pulse_django.conditions")

# Longer, and a question that goes wrong is felt by the queue; shorter, and a busy server leaves it unanswered.
STATEMENT_TIMEOUT = "5s"
# Seconds for questions that are asked one after the other. Longer, and a page or a minute is late; shorter leaves
# slow ones unasked.
BUDGET = 30.0
MOST_IN_A_LINE = 3  # subjects

Call = Callable[..., Any]  # runs a function that uses the database


def _directly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question."""

    condition: Condition
    subjects: list[Subject] = field(default_factory=list)
    is_more: bool = False  # there are more subjects than these
    error: str = ""  # why it could not be asked

    @property
    def is_clear(self) -> bool:
        """Whether the condition was asked and applies to nothing."""
        return not self.subjects and not self.error

    @property
    def is_problem(self) -> bool:
        return not self.is_clear and self.condition.severity.is_problem

    @property
    def number(self) -> str:
        """How many subjects there are, as far as they were counted."""
        return f"{len(self.subjects)}{'+' if self.is_more else ''}"

    @property
    def says(self) -> str:
        """One line: what was found, with the first subjects. Text from rows is made inert."""
        if self.error:
            return f"could not be checked: {inert(self.error)}"
        shown = [inert(f"{subject.key}: {subject.words}") for subject in self.subjects[:MOST_IN_A_LINE]]
        left = len(self.subjects) - len(shown)
        return "; ".join([*shown, f"and {left}{'+' if self.is_more else ''} more"] if left else shown)

    def to_json(self) -> dict[str, Any]:
        one = self.condition
        return {
            "name": one.name,
            "severity": one.severity,
            "is_clear": self.is_clear,
            "says": one.says,
            "means": one.means,
            "to_do": one.to_do,
            "page": one.page,
            "repair": one.repair.says if one.repair else None,
            "subjects": [{"key": _plain(subject.key), "words": subject.words} for subject in self.subjects],
            "is_more": self.is_more,
            "error": self.error,
        }


def _plain(key: Any) -> int | str:
    return key if isinstance(key, int) else str(key)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What all conditions say together. Every outlet gives this answer."""

    findings: Sequence[Finding]

    @property
    def found(self) -> list[Finding]:
        """What is wrong or could not be checked, the worst first."""
        return [finding for finding in self.findings if not finding.is_clear]

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_problem]

    @property
    def is_well(self) -> bool:
        """Whether no condition is broken, stuck or failing. A risk alone does not make the fleet unhealthy."""
        return not self.problems

    @property
    def says(self) -> str:
        return "; ".join(f"{finding.condition.name}: {finding.says}" for finding in self.found)

    def to_json(self) -> dict[str, Any]:
        """Return the verdict for the JSON of commands and of the health view."""
        return {"is_well": self.is_well, "conditions": [finding.to_json() for finding in self.found]}


def ask_all(alias: str, limits: Limits | None = None, *, call: Call = _directly) -> Verdict:
    """Ask every condition. ``call`` runs each step that uses the database."""
    limits, conditions = limits or Limits.of(conf.current()), known()
    together: list[Condition] = [one for one in conditions if one.sql]
    found = call(_ask_together, together, alias, limits)
    until = time.monotonic() + BUDGET
    for one in conditions:
        if one.name in found:
            continue
        if time.monotonic() < until:
            found[one.name] = call(ask, one, alias, limits)
        else:
            found[one.name] = Finding(condition=one, error="there was no time left to ask")
    return Verdict([found[one.name] for one in conditions])


def ask(condition: Condition, alias: str, limits: Limits | None = None) -> Finding:
    """Ask one. An error is its answer: the others can still be asked. A lost connection is raised."""
    limits = limits or Limits.of(conf.current())
    try:
        subjects = look_for(condition, alias, replace(limits, limit=limits.limit + 1))
    except DatabaseError as error:
        if _is_lost(alias):
            raise
        return Finding(condition=condition, error=error_in_one_line(error))
    except Exception as error:  # a question of an app
        logger.exception("Checking condition %s failed", condition.name)
        return Finding(condition=condition, error=f"{type(error).__name__}: {error_in_one_line(error)}")
    return _finding(condition, subjects, limits)


def look_for(condition: Condition, alias: str, limits: Limits) -> list[Subject]:
    """Return what a condition applies to, or raise what went wrong."""
    if condition.look is not None:
        return list(condition.look(alias, limits))[: limits.limit]
    return [Subject(*row) for row in _rows(alias, condition.sql, limits)]


def _ask_together(conditions: Sequence[Condition], alias: str, limits: Limits) -> dict[str, Finding]:
    """Ask in one statement. One question that fails spoils the statement: then there is no answer."""
    questions = [
        f"(SELECT {place}, pg_catalog.row_number() OVER (), pg_catalog.to_jsonb(key)::text, words::text"
        f" FROM ({one.sql}) AS found (key, words))"
        for place, one in enumerate(conditions)
    ]
    if not questions:
        return {}
    try:
        rows = _rows(alias, " UNION ALL ".join(questions), replace(limits, limit=limits.limit + 1))
    except DatabaseError:
        if _is_lost(alias):
            raise
        return {}
    subjects = defaultdict(list)
    for place, _, key, words in sorted(rows, key=lambda row: row[:2]):
        subjects[place].append(Subject(None if key is None else json.loads(key), words))
    return {one.name: _finding(one, subjects[place], limits) for place, one in enumerate(conditions)}


def _finding(condition: Condition, subjects: list[Subject], limits: Limits) -> Finding:
    is_more = len(subjects) > limits.limit
    return Finding(condition=condition, subjects=subjects[: limits.limit], is_more=is_more)


def _rows(alias: str, sql: str, limits: Limits) -> list[tuple[Any, ...]]:
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute(f"SET TRANSACTION READ ONLY; SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        cursor.execute(sql, limits.params())
        return list(cursor.fetchall())


def _is_lost(alias: str) -> bool:
    """Whether there is no connection any more: then no question was asked."""
    connection = connections[alias].connection
    return connection is None or bool(connection.closed)
