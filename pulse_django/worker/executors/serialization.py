"""How claims, outcomes and reports cross from one process to another: JSON, never pickles."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from pulse_django.words.decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry, Wait
from pulse_django.words.error_details import ErrorReport
from pulse_django.words.leases import Claim, Lease
from pulse_django.words.option_values import ClaimedOptions
from pulse_django.words.outcomes import (
    Cancelled,
    Discarded,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Stalled,
    Succeeded,
    TimedOut,
    Waited,
    WorkerLost,
)
from pulse_django.words.states import Status
from pulse_django.words.verb_results import Report, Settled

_OUTCOMES: dict[str, type[Any]] = {
    str(kind.name): kind
    for kind in (Succeeded, Failed, TimedOut, Stalled, WorkerLost, Snoozed, Waited, Released, Cancelled, Discarded)
}
_DECISIONS: dict[str, type[Any]] = {
    kind.__name__: kind for kind in (Complete, Retry, Postpone, Wait, DeadLetter, Cancel)
}


def claim_to_wire(claim: Claim) -> dict[str, Any]:
    return claim._asdict() | {"options": [_to_wire(value) for value in claim.options]}


def claim_from_wire(said: dict[str, Any]) -> Claim:
    lease, options = Lease(*said["lease"]), ClaimedOptions(*map(_from_wire, said["options"]))
    return Claim(**{**said, "lease": lease, "options": options})


def _to_wire(value: Any) -> Any:
    return {"seconds": value.total_seconds()} if isinstance(value, timedelta) else value


def _from_wire(said: Any) -> Any:
    return timedelta(**said) if isinstance(said, dict) else said


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    return {"name": str(outcome.name), "values": _values_of(outcome)}


def outcome_from_wire(said: dict[str, Any]) -> Outcome:
    kind, values = _OUTCOMES[said["name"]], _values_from(said["values"])
    if "error" in values:
        values["error"] = ErrorReport(**{**values["error"], "lineage": tuple(values["error"]["lineage"])})
    outcome: Outcome = kind(**values)
    return outcome


def report_to_wire(report: Report) -> dict[str, Any]:
    return {
        "lease": list(report.lease),
        "outcome": outcome_to_wire(report.outcome),
        "decision": {"name": type(report.decision).__name__, "values": _values_of(report.decision)},
        "progress": report.progress,
    }


def report_from_wire(said: dict[str, Any]) -> Report:
    decision = said["decision"]
    return Report(
        Lease(*said["lease"]),
        outcome_from_wire(said["outcome"]),
        _DECISIONS[decision["name"]](**_values_from(decision["values"])),
        said["progress"],
    )


def settled_to_wire(settled: Settled) -> dict[str, Any]:
    return {
        "accepted": [[list(lease), str(status)] for lease, status in settled.accepted.items()],
        "repeated": [list(lease) for lease in settled.repeated],
        "lost": [list(lease) for lease in settled.lost],
        "skipped": [list(lease) for lease in settled.skipped],
        "has_unresolved": settled.has_unresolved,
    }


def settled_from_wire(said: dict[str, Any]) -> Settled:
    return Settled(
        accepted={Lease(*lease): Status(status) for lease, status in said["accepted"]},
        repeated=frozenset(Lease(*lease) for lease in said["repeated"]),
        lost=frozenset(Lease(*lease) for lease in said["lost"]),
        skipped=frozenset(Lease(*lease) for lease in said["skipped"]),
        has_unresolved=said["has_unresolved"],
    )


def _values_of(value: Outcome | Decision) -> dict[str, Any]:
    said = asdict(value)
    if "delay" in said:
        said["delay"] = said["delay"].total_seconds()
    return said


def _values_from(said: dict[str, Any]) -> dict[str, Any]:
    values = dict(said)
    if "delay" in values:
        values["delay"] = timedelta(seconds=values["delay"])
    return values
