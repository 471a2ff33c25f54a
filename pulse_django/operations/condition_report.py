"""The output of ``pulse_check --all`` and ``--repair``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from django.core.management.base import CommandError
from django.db import Error

from pulse_django.health.conditions import Condition, Finding, RepairRefused, ask, known, named, repair
from pulse_django.queue.words.display import inert
from pulse_django.queue.words.documentation import page
from pulse_django.shards.fleet import FleetVerdict

Paint = Callable[[str], str]


def findings_in_words(
    findings: Iterable[Finding], good: Paint = str, warning: Paint = str, bad: Paint = str
) -> Iterator[str]:
    """Yield a line for each condition that is clear, and a paragraph for each other condition."""
    for finding in findings:
        one = finding.condition
        if finding.is_clear:
            yield f"{good('ok  ')} {one.name}: {one.says}"
            yield from _subjects(finding, "       ")
            continue
        mark = bad("FAIL") if finding.is_problem else warning("WARN")
        yield f"{mark} {one.name} ({one.severity}): {one.means}"
        if finding.error:
            yield f"       {finding.says}"
            continue
        yield from _subjects(finding, "       ")
        yield f"       Expected: {one.says}"
        yield f"       What to do: {one.to_do}"
        yield f"       More: {page(one.page)}"
        if one.repair is not None:
            yield f"       Repair: pulse_check --repair {one.name}"


def _subjects(finding: Finding, indent: str) -> Iterator[str]:
    for subject in finding.subjects:
        yield f"{indent}{inert(str(subject.key))}: {inert(subject.words)}"
    if finding.is_more:
        yield f"{indent}and more"
    yield from (f"{indent}{inert(figures)}" for figures in finding.figures)


def repairable(name: str) -> Condition:
    """Return a condition that has a repair, or raise a CommandError."""
    try:
        condition = named(name)
    except KeyError:
        names = ", ".join(one.name for one in known() if one.repair is not None)
        raise CommandError(f"Unknown condition {name!r}. Conditions with a repair: {names}.") from None
    if condition.repair is None:
        raise CommandError(f"{name} has no repair. {condition.to_do}")
    return condition


def rehearse(condition: Condition, finding: Finding) -> Iterator[str]:
    """Yield the effect of a repair, without applying it."""
    if finding.error:
        yield f"{condition.name} {finding.says}"
    elif finding.is_clear:
        yield f"{condition.name} is clear: nothing to repair."
    else:
        yield from _subjects(finding, "  ")
        yield f"Repair: {condition.repair.says if condition.repair else ''}"
        yield "Nothing was changed. Add --yes to apply it."


def perform(condition: Condition, alias: str, write: Callable[[str], object]) -> dict[str, Any]:
    """Repair, print each step, and check the condition again at the end."""
    steps = repaired = 0
    try:
        for step in repair(condition, alias):
            steps += 1
            repaired += step.repaired
            write(f"  step {steps}: {len(step.subjects)} found, {step.repaired} repaired")
    except RepairRefused as refused:
        raise CommandError(f"Refused: {refused}.") from refused
    except Error as error:
        raise CommandError(f"Failed after {repaired} repaired: {inert(' '.join(str(error).split()))}") from error
    finding = ask(condition, alias)
    write(f"{condition.name}: {repaired} repaired; it {'is clear now' if finding.is_clear else 'still applies'}")
    return {"name": condition.name, "steps": steps, "repaired": repaired, "is_clear": finding.is_clear}


def problems_in_words(fleet: FleetVerdict) -> str:
    """Return the names of conditions that are problems, and of shards that do not respond, as text."""
    lines = [f"Shard {alias!r} does not respond: {said}." for alias, said in fleet.away.items()]
    for alias, verdict in fleet.by_shard.items():
        if not verdict.is_well:
            names = ", ".join(finding.condition.name for finding in verdict.problems)
            where = "" if len(fleet.by_shard) + len(fleet.away) == 1 else f" of shard {alias!r}"
            lines.append(f"{len(verdict.problems)} of {len(verdict.findings)} conditions{where} are problems: {names}.")
    return " ".join(lines)
