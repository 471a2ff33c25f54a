"""What an operation did, also if it was interrupted: in lines, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pulse_django.words.display import in_words

from .batches import Walk
from .verbs import MassVerb


@dataclass(frozen=True, slots=True, kw_only=True)
class MassReport:
    counts: Mapping[str, int]  # by what the verb answered
    met: int  # jobs that were given to the verb
    matches: int  # at the start
    unsure: tuple[int, ...]  # their batch was sent, and its answer never came
    interrupted: bool
    problem: str  # what the database said; empty: nothing
    seconds: float

    @classmethod
    def of(cls, walk: Walk, verb: MassVerb, *, matches: int, seconds: float, problem: str = "") -> MassReport:
        return cls(
            counts={name: walk.counts[name] for name in verb.answers},
            met=walk.met,
            matches=matches,
            unsure=walk.unsure,
            interrupted=not walk.is_complete and not problem,
            problem=problem,
            seconds=round(seconds, 3),
        )

    def in_lines(self, verb: MassVerb) -> list[str]:
        lines = [f"{verb.summary(self.counts)} Took {in_words(self.seconds)}."]
        if self.unsure:
            lines.append(
                f"The result for {len(self.unsure)} more jobs, ids {self.unsure[0]} to {self.unsure[-1]}, is unknown: "
                f"the connection was lost. It is safe to run the command again."
            )
        if self.interrupted or self.problem:
            left = max(0, self.matches - self.met - len(self.unsure))
            lines.append(
                f"Stopped early: about {left} of {self.matches} were not processed. Run the command again to continue."
            )
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            **self.counts,
            "met": self.met,
            "unsure": list(self.unsure),
            "interrupted": self.interrupted,
            "error": self.problem or None,
            "seconds": self.seconds,
        }
