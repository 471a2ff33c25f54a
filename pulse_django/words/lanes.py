"""Lanes: the (queue, priority) pairs that hold claimable jobs, and the order in which a claim visits them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple


class Lane(NamedTuple):
    """All claimable jobs of one queue at one priority: one range of the claim index."""

    queue: str
    priority: int


def rotation(lanes: Sequence[Lane], turn: int) -> list[Lane]:
    """Order lanes by priority; among equals a different queue comes first at every turn, so that none starves."""
    by_priority = sorted(lanes, key=lambda lane: (-lane.priority, lane.queue))
    ordered: list[Lane] = []
    for _, equals in groupby(by_priority, key=lambda lane: lane.priority):
        group = list(equals)
        start = turn % len(group)
        ordered += group[start:] + group[:start]
    return ordered
