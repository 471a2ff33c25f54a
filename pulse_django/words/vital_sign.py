"""What a vital sign is made of: its name, its kind, what it means and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class SignKind(StrEnum):
    GAUGE = "gauge"  # how things stand
    COUNTER = "counter"  # since the first minute that was written; only ever rises
    HISTOGRAM = "histogram"  # of seconds, counted as a counter is


@dataclass(frozen=True, slots=True, kw_only=True)
class VitalSign:
    name: str  # without the prefix of an outlet
    kind: SignKind
    means: str
    to_do: str
    unit: str = ""
    labels: tuple[str, ...] = ()
