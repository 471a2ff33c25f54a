"""How many runs a job may have, and how many of its runs count."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """How many runs of a job count, and how many it may have."""

    attempts: int
    refunds: int
    max_attempts: int
    losses: int = 0  # how many earlier runs ended with their worker
    max_losses: int | None = None  # with so many it is taken for what kills them; None: the fleet's limit
    free_losses: bool = False  # a lost worker costs no attempt
    cancel_requested: bool = False

    @property
    def counted(self) -> int:
        """Attempts that count against the budget: a snooze, a hand-back or an operator's retry do not."""
        return self.attempts - self.refunds

    @property
    def left(self) -> int:
        return self.max_attempts - self.counted
