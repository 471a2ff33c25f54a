"""What ``pulse_watchdog --check`` and ``--repair`` say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from django.db import Error

from pulse_django.fleet.conditions import Condition, Finding, RepairRefused, ask, known, mend, named
from pulse_django.words.display import inert

Paint = Callable[[str], str]


class Unrepairable(Exception):
    """A repair that there is not, or that would do harm just now."""


def findings_as_json(findings: Sequence[Finding]) -> str:
    holds = all(finding.holds for finding in findings)
    return json.dumps({"holds": holds, "conditions": [finding.to_json() for finding in findings]}, default=str)


def findings_in_words(findings: Iterable[Finding], good: Paint = str, bad: Paint = str) -> Iterator[str]:
    """A line for each condition that holds, and a paragraph for each that does not."""
    for finding in findings:
        one = finding.condition
        if finding.holds:
            yield f"{good('ok  ')} {one.name}: {one.says}"
            continue
        yield f"{bad('FAIL')} {one.name} ({one.severity}): {one.says}"
        if finding.error:
            yield f"       could not be checked: {inert(finding.error)}"
            continue
        for subject in finding.subjects:
            yield f"       {inert(str(subject.key))}: {inert(subject.words)}"
        if finding.is_more:
            yield "       and more"
        yield f"       What it means: {one.means}"
        yield f"       What to do: {one.to_do}"
        if one.repair is not None:
            yield f"       Repair: pulse_watchdog --repair {one.name}"


def repairable(name: str) -> Condition:
    """Find a condition that can be repaired, or say why not."""
    try:
        condition = named(name)
    except KeyError:
        names = ", ".join(one.name for one in known() if one.repair is not None)
        raise Unrepairable(f"Unknown condition {name!r}. Conditions with a repair: {names}.") from None
    if condition.repair is None:
        raise Unrepairable(f"{name} has no repair. {condition.to_do}")
    return condition


def rehearse(condition: Condition, alias: str) -> tuple[Finding, Iterator[str]]:
    """Say what a repair would do, and do nothing."""
    finding = ask(condition, alias)
    return finding, _rehearsed(condition, finding)


def _rehearsed(condition: Condition, finding: Finding) -> Iterator[str]:
    if finding.error:
        yield f"{condition.name} could not be checked: {inert(finding.error)}"
        return
    if finding.holds:
        yield f"{condition.name} holds: nothing to repair."
        return
    for subject in finding.subjects:
        yield f"  {inert(str(subject.key))}: {inert(subject.words)}"
    if finding.is_more:
        yield "  and more"
    yield f"Repair: {condition.repair.says if condition.repair else ''}"
    yield "Nothing was changed. Add --yes to apply it."


def perform(condition: Condition, alias: str, tell: Callable[[str], object]) -> dict[str, Any]:
    """Mend, telling each step, and ask once more at the end."""
    steps = mended = 0
    try:
        for step in mend(condition, alias):
            steps += 1
            mended += step.mended
            tell(f"  step {steps}: {len(step.subjects)} found, {step.mended} repaired")
    except RepairRefused as refused:
        raise Unrepairable(f"Refused: {refused}.") from refused
    except Error as error:
        raise Unrepairable(f"Failed after {mended} repaired: {inert(' '.join(str(error).split()))}") from error
    finding = ask(condition, alias)
    tell(f"{condition.name}: {mended} repaired; it {'holds now' if finding.holds else 'still fails'}")
    return {"name": condition.name, "steps": steps, "mended": mended, "holds": finding.holds}
