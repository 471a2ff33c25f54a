"""Lanes: ranges of the claim index. Here are the order in which a claim visits them and the number of jobs it takes."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from .leases import Claim


class Lane(NamedTuple):
    """All claimable jobs of one queue, at one priority, with one lane key: one range of the claim index."""

    queue: str
    priority: int
    key: str = ""  # from lane_keys.py; empty for jobs without a limit or a share


def lane_of(claim: Claim) -> Lane:
    return Lane(claim.queue, claim.priority, claim.lane_key)


# The most lanes with keys that a claim visits: one for every four jobs, but not fewer than eight. Each costs a probe.
FEWEST_LANES, JOBS_A_LANE = 8, 4
# If a lane also costs a lock and a count, a claim above LARGE visits at most one for every sixteen jobs.
LARGE, JOBS_A_COSTLY_LANE = 64, 16


NOT_AGED: Mapping[Lane, int] = MappingProxyType({})


def levels_gained(overdue: Mapping[Lane, float], ageing: float) -> dict[Lane, int]:
    """Return how many priority levels each lane gains. ``overdue``: seconds since its first job was due."""
    return {lane: level for lane, seconds in overdue.items() if (level := int(seconds / ageing)) > 0}


def rotation(lanes: Sequence[Lane], turn: int, aged: Mapping[Lane, int] = NOT_AGED) -> list[Lane]:
    """Order lanes by priority. Among equals, another queue comes first in each turn, so that none starves.

    ``aged`` has the levels by which lanes are raised.
    """

    def level(lane: Lane) -> int:
        return lane.priority + aged.get(lane, 0)

    by_priority = sorted(lanes, key=lambda lane: (-level(lane), lane.queue, lane.key))
    ordered: list[Lane] = []
    for _, equals in groupby(by_priority, key=level):
        group = list(equals)
        start = turn % len(group)
        ordered += group[start:] + group[:start]
    return ordered


def in_slots(held: Mapping[Lane, int], jobs_a_slot: Mapping[Lane, int]) -> dict[Lane, int]:
    """Convert the leases of lanes into slots: a chunk takes one slot."""
    return {lane: -(-leases // jobs_a_slot.get(lane, 1)) for lane, leases in held.items()}


def in_jobs(
    takes: Mapping[Lane, int],
    jobs_a_slot: Mapping[Lane, int],
    *,
    gathered: Mapping[str, int],
    free: int,
    most: int,
    more_soon: bool = False,
) -> dict[Lane, int]:
    """Convert the slots of each lane into the number of jobs to claim, at most ``most`` in total.

    ``jobs_a_slot`` has the lanes of chunks, and ``gathered`` the jobs that already wait there for the rest of a chunk.
    A chunk is claimed only if one of the ``free`` slots is left for it. A chunk that does not fit into ``most`` is left
    for the next claim, unless no other chunk is claimed and ``most`` will not grow. ``more_soon``: it will grow.
    """
    jobs = {lane: take for lane, take in takes.items() if lane not in jobs_a_slot}
    left = most - sum(jobs.values())
    for lane, take in takes.items():
        if lane in jobs_a_slot:
            size = jobs_a_slot[lane]
            waiting = gathered.get(lane.key, 0)
            count = wanted = min(take, free) * size - waiting
            if wanted > left:
                full_chunks = (waiting + left) // size * size - waiting
                count = full_chunks if full_chunks > 0 or more_soon else left
            if count > 0:
                jobs[lane] = count
                free, left = free - -(-count // size), left - count
    return jobs


def deal(
    lanes: Sequence[Lane],
    limit: int,
    *,
    held: Mapping[Lane, int],
    weight: Callable[[Lane], float] = lambda _: 1.0,
    are_costly: bool = False,
) -> dict[Lane, int]:
    """Share ``limit`` slots among lanes of one priority, given in the order of their rotation.

    Each slot goes to the lane with the fewest leases for its weight; among equals, to the first.
    """
    most = max(FEWEST_LANES, limit // JOBS_A_LANE)
    if are_costly and limit > LARGE:
        most = max(LARGE // JOBS_A_LANE, limit // JOBS_A_COSTLY_LANE)
    weights = [weight(lane) for lane in lanes]
    waiting = [(held.get(lane, 0) / weights[place], place, lane) for place, lane in enumerate(lanes)]
    line = heapq.nsmallest(most, waiting)
    heapq.heapify(line)
    takes: dict[Lane, int] = {}
    for _ in range(limit if line else 0):
        _, place, lane = line[0]
        takes[lane] = takes.get(lane, 0) + 1
        heapq.heapreplace(line, ((held.get(lane, 0) + takes[lane]) / weights[place], place, lane))
    return takes
