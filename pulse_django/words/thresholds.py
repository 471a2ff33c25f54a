"""When a fleet is not well: numbers that may be crossed, for alerts and for probes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

# Conditions that have thresholds of their own, or, as a pause, are somebody's decision. Others count as orphans.
UNSERVED, UNREAPED = "queue-without-worker", "lease-not-reaped"
NO_ORPHANS = (UNSERVED, UNREAPED, "paused-backlog")


def orphans_of(broken: Mapping[str, int]) -> int:
    """Return how many things break any other condition."""
    return sum(count for name, count in broken.items() if name not in NO_ORPHANS)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """How things stand, as far as thresholds ask."""

    oldest_due: float  # seconds for which the first due job has been due, of queues that are not paused
    dead_letters: int  # new ones, in the last hour
    expirations: int  # leases that ran out, in the last hour
    unserved_queues: int  # in which jobs are due, and which no live worker serves
    unreaped: int  # leases that ran out some ticks ago, and that nobody saw
    orphans: int  # whatever else breaks a condition


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """One number that must not be exceeded."""

    name: str  # in PULSE["ALERTS"]
    fact: str  # of FleetFacts
    says: str  # with %(found)s and %(allowed)s
    default: float  # for probes, of projects that named none


THRESHOLDS = {
    one.name: one
    for one in (
        Threshold(
            name="OLDEST_DUE",
            fact="oldest_due",
            says="a job has been due for %(found)s s (limit %(allowed)s s)",
            default=900,
        ),
        Threshold(
            name="DEAD_LETTERS",
            fact="dead_letters",
            says="%(found)s dead letters in the last hour (limit %(allowed)s)",
            default=100,
        ),
        Threshold(
            name="EXPIRATIONS",
            fact="expirations",
            says="%(found)s leases expired in the last hour (limit %(allowed)s)",
            default=100,
        ),
        Threshold(
            name="UNSERVED_QUEUES",
            fact="unserved_queues",
            says="%(found)s queues have due jobs but no live worker (limit %(allowed)s)",
            default=0,
        ),
        Threshold(
            name="UNREAPED",
            fact="unreaped",
            says="%(found)s expired leases were not recovered (limit %(allowed)s)",
            default=0,
        ),
        Threshold(
            name="ORPHANS",
            fact="orphans",
            says="%(found)s jobs, queues or other objects violate a condition (limit %(allowed)s)",
            default=1_000,
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A threshold that is exceeded."""

    name: str
    found: float
    allowed: float

    @property
    def says(self) -> str:
        said = {"found": f"{self.found:g}", "allowed": f"{self.allowed:g}"}
        return THRESHOLDS[self.name].says % said


def crossed(facts: FleetFacts, allowed: Mapping[str, float]) -> list[Crossing]:
    """Return which of these thresholds are exceeded."""
    found = {name: float(getattr(facts, THRESHOLDS[name].fact)) for name in allowed}
    return [
        Crossing(name=name, found=found[name], allowed=most) for name, most in allowed.items() if found[name] > most
    ]
