"""Repair what a condition applies to, in bounded steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pulse_django import conf

from .asking import look_for
from .catalogue import Condition, Limits, Subject

MOST_STEPS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """What one step of a repair did."""

    subjects: list[Subject]  # that were found
    repaired: int


def repair(condition: Condition, alias: str, limits: Limits | None = None) -> Iterator[Step]:
    """Repair step by step, until nothing is found any more or a step repaired nothing."""
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
