"""Asking, and mending: each question in a short transaction of its own, each repair in bounded steps."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import DatabaseError, connections, transaction

from pulse_django import conf
from pulse_django.words.payloads import error_in_one_line

from .catalogue import Condition, Limits, Subject, known

# Longer, and a question that goes wrong is felt by the queue; shorter, and a busy server leaves it unanswered.
STATEMENT_TIMEOUT = "5s"
MOST_STEPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The answer to one question."""

    condition: Condition
    subjects: list[Subject] = field(default_factory=list)
    is_more: bool = False  # there are more subjects than these
    error: str = ""  # why it could not be asked; that is no good news either
    took: float = 0.0  # seconds

    @property
    def holds(self) -> bool:
        return not self.subjects and not self.error

    def to_json(self) -> dict[str, Any]:
        one = self.condition
        return {
            "name": one.name,
            "severity": one.severity,
            "holds": self.holds,
            "says": one.says,
            "means": one.means,
            "to_do": one.to_do,
            "repair": one.repair.says if one.repair else None,
            "subjects": [{"key": subject.key, "words": subject.words} for subject in self.subjects],
            "is_more": self.is_more,
            "error": self.error,
            "took": round(self.took, 4),
        }


def ask_all(alias: str, limits: Limits | None = None) -> list[Finding]:
    """Ask every condition that there is."""
    limits = limits or Limits.of(conf.current())
    return [ask(condition, alias, limits) for condition in known()]


def ask(condition: Condition, alias: str, limits: Limits | None = None) -> Finding:
    """Ask one. What goes wrong with it is its answer: the others are still worth asking."""
    limits = limits or Limits.of(conf.current())
    begin = time.monotonic()
    try:
        subjects = _look(condition, alias, replace(limits, limit=limits.limit + 1))
    except DatabaseError as error:
        return Finding(condition=condition, error=error_in_one_line(error), took=time.monotonic() - begin)
    is_more = len(subjects) > limits.limit
    shown = subjects[: limits.limit]
    return Finding(condition=condition, subjects=shown, is_more=is_more, took=time.monotonic() - begin)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of a repair did."""

    subjects: list[Subject]  # that were found broken
    mended: int


def mend(condition: Condition, alias: str, limits: Limits | None = None) -> Iterator[Step]:
    """Mend step by step, until nothing is found any more, or a step mended nothing."""
    repair = condition.repair
    if repair is None:
        raise ValueError(f"{condition.name} has no repair: {condition.to_do}")
    limits = replace(limits or Limits.of(conf.current()), limit=repair.at_a_time)
    for _ in range(MOST_STEPS):
        subjects = _look(condition, alias, limits)
        if not subjects:
            return
        step = Step(subjects=subjects, mended=repair.act(alias, [subject.key for subject in subjects]))
        yield step
        if not step.mended:
            return


def _look(condition: Condition, alias: str, limits: Limits) -> list[Subject]:
    if condition.look is not None:
        return list(condition.look(alias, limits))[: limits.limit]
    with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")
        cursor.execute(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        cursor.execute(condition.sql, limits.params())
        return [Subject(*row) for row in cursor.fetchall()]
