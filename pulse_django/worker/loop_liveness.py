"""Whether the loops of a keeper make progress: each notes every step and every statement.

A database that is away makes steps fail, and loops that fail turn all the same. So an outage is never taken for a
worker that hangs, and its supervisor would restart it together with all the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from .guarded_connection import GuardedConnection, longest_wait

T = TypeVar("T")

MAIN = "main"
PAUSES = 3  # that a loop may leave out
# Seconds. Shorter, and a host that was paused for a moment looks dead.
SHORTEST_PATIENCE = 10.0
# Of loops that ask the database. Connecting to it may wait for a resolver, which cannot be interrupted: half a minute
# and more while names are not answered. Shorter restarts workers for that; longer leaves one that hangs.
PATIENCE_WITH_DATABASE = 60.0


@dataclass(frozen=True, slots=True)
class Turn:
    """When a loop last turned, and for how long it may take until the next time."""

    at: float
    patience: float


def hanging(turns: Mapping[str, Turn], now: float) -> dict[str, float]:
    """Return the loops that should have turned long ago, and for how many seconds they have not."""
    return {name: now - turn.at for name, turn in turns.items() if now - turn.at > turn.patience}


class LoopLiveness:
    """Written by the loops of a keeper, each its own, and read by the HTTP port."""

    def __init__(self) -> None:
        self._patience: dict[str, float] = {}
        self._turns: dict[str, Turn] = {}
        self._answered_at: dict[str, float] = {}

    def turned(self, name: str) -> None:
        self._turns[name] = Turn(time.monotonic(), self._patience.get(name, SHORTEST_PATIENCE))

    def connection(self, alias: str, name: str, pause: float) -> GuardedConnection:
        """Return the connection of a loop that pauses for at most so long, and expect that loop to turn from now on."""
        self._patience[name] = max(PATIENCE_WITH_DATABASE, PAUSES * max(pause, longest_wait()))
        self.turned(name)
        return _FollowedConnection(alias, name, self)

    def following(self, name: str, step: Callable[[], float]) -> Callable[[], float]:
        """Return that step of a loop, which is noted each time that it begins."""

        def followed() -> float:
            self.turned(name)
            return step()

        return followed

    def answered(self, name: str) -> None:
        self._answered_at[name] = time.monotonic()

    def hanging(self) -> dict[str, float]:
        return hanging(dict(self._turns), time.monotonic())

    def unanswered(self, name: str) -> float:
        """Return for how many seconds the database has not answered that loop; infinite before it ever did."""
        return time.monotonic() - self._answered_at.get(name, float("-inf"))


class _FollowedConnection(GuardedConnection):
    def __init__(self, alias: str, name: str, liveness: LoopLiveness) -> None:
        super().__init__(alias, name)
        self._liveness = liveness

    def call(self, verb: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        # A sweep may be a dozen statements, each as long as a statement is allowed to take.
        self._liveness.turned(self.purpose)
        answer = super().call(verb, *args, **kwargs)
        self._liveness.turned(self.purpose)
        self._liveness.answered(self.purpose)
        return answer
