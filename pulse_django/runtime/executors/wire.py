"""How claims and outcomes cross from one process to another: JSON, never pickles."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from ...errors import ErrorReport
from ...leases import Claim, Lease
from ...outcomes import (
    Cancelled,
    Discarded,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Stalled,
    Succeeded,
    TimedOut,
    WorkerLost,
)

_OUTCOMES: dict[str, type[Any]] = {
    str(kind.name): kind
    for kind in (Succeeded, Failed, TimedOut, Stalled, WorkerLost, Snoozed, Released, Cancelled, Discarded)
}
_DURATIONS = ("timeout", "stall_after")


def claim_to_wire(claim: Claim) -> dict[str, Any]:
    said = claim._asdict()
    for name in _DURATIONS:
        said[name] = None if said[name] is None else said[name].total_seconds()
    return said


def claim_from_wire(said: dict[str, Any]) -> Claim:
    values = dict(said)
    values["lease"] = Lease(*values["lease"])
    for name in _DURATIONS:
        values[name] = None if values[name] is None else timedelta(seconds=values[name])
    return Claim(**values)


def outcome_to_wire(outcome: Outcome) -> dict[str, Any]:
    said = asdict(outcome)
    if "delay" in said:
        said["delay"] = said["delay"].total_seconds()
    return {"name": str(outcome.name), "values": said}


def outcome_from_wire(said: dict[str, Any]) -> Outcome:
    kind, values = _OUTCOMES[said["name"]], dict(said["values"])
    if "delay" in values:
        values["delay"] = timedelta(seconds=values["delay"])
    if "error" in values:
        values["error"] = ErrorReport(**{**values["error"], "lineage": tuple(values["error"]["lineage"])})
    outcome: Outcome = kind(**values)
    return outcome
