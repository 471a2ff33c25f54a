"""Check the conditions: all in one statement, and if that fails, one after the other."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from django.db import DatabaseError, connections

from pulse_django import conf
from pulse_django.queue.database.dialects import Statements, statements_for
from pulse_django.queue.database.read_only import briefly, is_lost
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.payloads import error_in_one_line
from pulse_django.safe_logging import SafeLogger

from .catalogue import CannotTell, Condition, Limits, Severity, Subject, as_json, is_ours, known, subject_of
from .shared_queries import with_shared_queries

logger = SafeLogger("pulse_django.conditions")

# Longer, and a slow query could affect the queue; shorter, and it could fail on a busy server.
STATEMENT_TIMEOUT = "5s"
# Seconds after which no further condition is checked. Longer, and pages, probes and minutes are late; shorter, and
# conditions after slow queries are not checked.
BUDGET = 8.0
MOST_TIMEOUTS = 2  # of conditions that are checked alone; the next ones would time out too
TIMEOUTS = ("57014", "55P03")  # statement_timeout and lock_timeout
MOST_IN_A_LINE, MOST_CHARACTERS = 3, 300  # subjects, and characters of each

Call = Callable[..., Any]  # runs a function that uses the database


def _directly(function: Callable[..., Any], *args: Any) -> Any:
    return function(*args)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one condition."""

    condition: Condition
    subjects: list[Subject] = field(default_factory=list)
    figures: list[str] = field(default_factory=list)  # of advice, whether it is clear or not
    is_more: bool = False  # there are more subjects than these
    error: str = ""  # why it could not be checked
    cannot_tell: bool = False  # because there are too few facts, which is no failure
    is_timeout: bool = False  # of the server or of our own limits

    @property
    def is_clear(self) -> bool:
        """Return whether the condition was checked and has no subjects."""
        return not self.subjects and not self.error

    @property
    def is_problem(self) -> bool:
        return not self.is_clear and self.condition.severity.is_problem

    @property
    def is_warning(self) -> bool:
        """Return whether ``pulse_check --advice --strict`` fails."""
        is_advice = self.condition.severity is Severity.WARNING
        return self.is_problem or (is_advice and not self.is_clear and not self.cannot_tell)

    @property
    def number(self) -> str:
        """Return the number of subjects, with "+" if there are more."""
        return f"{len(self.subjects)}{'+' if self.is_more else ''}"

    @property
    def says(self) -> str:
        """Return the finding as one line, with the first subjects. Text from rows is made inert."""
        if self.error:
            return f"could not be checked: {inert(self.error)}"
        first = self.subjects[:MOST_IN_A_LINE]
        shown = [inert(f"{subject.key}: {subject.words}", MOST_CHARACTERS) for subject in first]
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
            "subjects": [
                {"key": key if isinstance(key, int) else str(key), "words": words} for key, words in self.subjects
            ],
            "is_more": self.is_more,
            "figures": self.figures,
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class Verdict:
    """The results of all conditions. Commands, pages, probes and metrics all use it."""

    findings: Sequence[Finding]

    @property
    def found(self) -> list[Finding]:
        """Return the findings that are not clear, or could not be checked, the worst first."""
        return [finding for finding in self.findings if not finding.is_clear]

    @property
    def problems(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.is_problem]

    @property
    def is_unknown(self) -> bool:
        """Return whether all problems are conditions that could not be checked."""
        return bool(self.problems) and all(finding.error for finding in self.problems)

    @property
    def is_well(self) -> bool:
        """Return whether no condition is broken, stuck or failing. A risk does not make the fleet unhealthy."""
        return not self.problems

    @property
    def says(self) -> str:
        return "; ".join(f"{finding.condition.name}: {finding.says}" for finding in self.found)

    def to_json(self, *, clear_too: bool = False) -> dict[str, Any]:
        """Return the verdict for the JSON of commands and of the health view."""
        findings = self.findings if clear_too else self.found
        return {"is_well": self.is_well, "conditions": [finding.to_json() for finding in findings]}


def ask_all(alias: str, limits: Limits | None = None, *, advice: bool = False, call: Call = _directly) -> Verdict:
    """Check every condition. ``call`` runs each step that uses the database."""
    limits, conditions = limits or Limits.of(conf.current()), known(advice=advice)
    until, timeouts = time.monotonic() + BUDGET, 0
    # Conditions of apps are checked alone: an error in one would make the common statement fail.
    found = call(_ask_together, [one for one in conditions if one.sql and is_ours(one)], alias, limits)
    for one in conditions:
        if one.name in found:
            continue
        if timeouts < MOST_TIMEOUTS and time.monotonic() < until:
            found[one.name] = call(ask, one, alias, limits)
            timeouts += found[one.name].is_timeout
        else:
            found[one.name] = Finding(condition=one, error="the database takes too long to answer", is_timeout=True)
    return Verdict([found[one.name] for one in conditions])


def ask(condition: Condition, alias: str, limits: Limits | None = None) -> Finding:
    """Check one condition. Return an error as a finding, but raise if the connection is lost."""
    limits = limits or Limits.of(conf.current())
    try:
        subjects = look_for(condition, alias, replace(limits, limit=limits.limit + 1))
    except (DatabaseError, CannotTell) as error:
        if is_lost(alias):
            raise
        is_timeout = getattr(error.__cause__, "sqlstate", None) in TIMEOUTS
        cannot_tell, said = isinstance(error, CannotTell), error_in_one_line(error)
        return Finding(condition=condition, error=said, cannot_tell=cannot_tell, is_timeout=is_timeout)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # code of an app, which may raise SystemExit
        logger.exception("Checking condition %s failed", condition.name)
        return Finding(condition=condition, error=f"{type(error).__name__}: {error_in_one_line(error)}")
    return _finding(condition, subjects, limits)


class Looking(Statements):
    """How conditions are checked."""

    in_one_statement = True  # all that are SQL

    def looks(self) -> Mapping[str, Callable[[str, Limits], Iterable[Subject]]]:
        """Return functions to call instead of checking conditions, by the name of the condition."""
        return {}


def look_for(condition: Condition, alias: str, limits: Limits) -> list[Subject]:
    """Return the subjects of a condition, or raise its error."""
    look = statements_for(Looking, alias).looks().get(condition.name, condition.look)
    if look is None and is_ours(condition):
        return [subject_of(row) for _, row in _rows(alias, with_shared_queries(as_json(condition.sql)), limits)]
    if look is None:
        # An app may have a table with the name of a shared query.
        return [_subject(row) for row in _rows(alias, condition.sql, limits)]
    with briefly(alias, STATEMENT_TIMEOUT):
        return [_subject(row) for row in islice(look(alias, limits), limits.limit)]


def _subject(row: Sequence[Any]) -> Subject:
    if len(row) != 2:
        raise ValueError(f"a condition must return rows of (key, words), not {len(row)} columns")
    key, words = row
    return Subject(key, words if isinstance(words, str) else str("" if words is None else words))


def _ask_together(conditions: Sequence[Condition], alias: str, limits: Limits) -> dict[str, Finding]:
    """Check conditions in one statement. Return {} if it fails, or if the server cannot run it."""
    questions = [f"({as_json(one.sql, place)})" for place, one in enumerate(conditions)]
    subjects: defaultdict[int, list[Subject]] = defaultdict(list)
    if not questions:
        return {}
    try:
        if not statements_for(Looking, alias).in_one_statement:
            return {}
        rows = _rows(alias, with_shared_queries(" UNION ALL ".join(questions)), replace(limits, limit=limits.limit + 1))
        for place, row in rows:
            subjects[place].append(subject_of(row))
    except (DatabaseError, ValueError, KeyError, TypeError) as error:  # the last three: of rows without a sentence
        if is_lost(alias):
            raise
        logger.warning("Checking all conditions in one statement failed: %s", error_in_one_line(error))
        return {}
    return {one.name: _finding(one, subjects[place], limits) for place, one in enumerate(conditions)}


def _finding(condition: Condition, subjects: list[Subject], limits: Limits) -> Finding:
    is_more, figures = len(subjects) > limits.limit, list[str]()
    if condition.severity.is_advice:
        figures = [one.words for one in subjects if one.key is None]
        subjects = [one for one in subjects if one.key is not None]
    return Finding(condition=condition, subjects=subjects[: limits.limit], is_more=is_more, figures=figures)


def _rows(alias: str, sql: str, limits: Limits) -> list[tuple[Any, ...]]:
    with briefly(alias, STATEMENT_TIMEOUT), connections[alias].cursor() as cursor:
        cursor.execute(sql, limits.params())
        return list(cursor.fetchall())


# Repair the subjects of a condition, in bounded steps.


MOST_STEPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The result of one step of a repair."""

    subjects: list[Subject]  # that were found
    repaired: int


def repair(condition: Condition, alias: str, limits: Limits | None = None) -> Iterator[Step]:
    """Repair step by step, until nothing is found or a step repairs nothing."""
    found = condition.repair
    if found is None:
        raise ValueError(f"{condition.name} has no repair: {condition.to_do}")
    limits = replace(limits or Limits.of(conf.current()), limit=found.at_a_time)
    for _ in range(MOST_STEPS):
        subjects = look_for(condition, alias, limits)
        if not subjects:
            return
        step = Step(subjects=subjects, repaired=found.act(alias, [subject.key for subject in subjects]))
        yield step
        if not step.repaired:
            return
