"""What one sweep of a watchdog did."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from pulse_django.words.states import Status
from pulse_django.words.verb_results import Reaped


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    reaped: list[Reaped]
    expired: int = 0  # jobs that had not started in time
    resumed: list[str] = field(default_factory=list)  # queues
    lost: list[str] = field(default_factory=list)  # workers
    given_up: list[int] = field(default_factory=list)  # jobs whose task no live worker knows
    pruned: dict[Status, int] = field(default_factory=dict)  # jobs deleted
    has_more: bool = False  # the next sweep should not wait
    took: float = 0.0  # seconds

    def to_json(self) -> str:
        """One line for a log."""
        outcomes = Counter(str(one.outcome) for one in self.reaped)
        said = {"reaped": len(self.reaped), "outcomes": outcomes, "resumed": self.resumed, "lost": self.lost}
        said |= {"expired": self.expired, "given_up": self.given_up}
        return json.dumps(said | {"pruned": self.pruned, "took": round(self.took, 4)})
