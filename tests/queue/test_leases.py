from __future__ import annotations

import os
from collections.abc import Sequence

import pytest
from hypothesis import given, strategies

from pulse_django.queue.words.lanes import Lane, levels_gained, rotation
from pulse_django.queue.words.leases import Identity


def test_lanes_of_old_jobs_are_raised() -> None:
    low, high, other = Lane("a", 0), Lane("a", 10), Lane("b", 9)
    aged = levels_gained({low: 599.0, high: 59.9, other: 60.0}, 60.0)
    assert aged == {low: 9, other: 1}
    assert rotation([low, high, other], 0, aged) == [high, other, low]
    aged = levels_gained({low: 660.0}, 60.0)
    assert rotation([low, high, other], 0, aged) == [low, high, other]


def test_no_two_claims_ever_share_a_holder() -> None:
    first, second = Identity("pod-1"), Identity("pod-1")  # a reused name
    holders = [identity.mint_holder() for identity in (first, second, first, second)]
    assert len(set(holders)) == 4


def test_a_hostile_host_name_is_made_safe_and_short() -> None:
    for identity in (Identity("evil\x00\r\n\x1b[31m" + "x" * 10_000), Identity("w", boot_id="x\x00" * 500)):
        holder = identity.mint_holder()
        assert holder.isascii()
        assert holder.isprintable()
        assert len(holder) <= 160
    assert Identity("").name == "worker"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the child does nothing but mint and leave
def test_a_fork_does_not_mint_its_parents_holders() -> None:
    identity = Identity("w")
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writer, identity.mint_holder().encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 1_000).decode() != identity.mint_holder()
    os.close(reader)
    os.close(writer)


lanes = strategies.lists(
    strategies.builds(Lane, strategies.sampled_from("abcdef"), strategies.integers(-2, 2)), unique=True
)


@given(lanes, strategies.integers(0, 50))
def test_a_rotation_keeps_every_lane_and_never_puts_a_lower_priority_first(lanes: Sequence[Lane], turn: int) -> None:
    visited = rotation(lanes, turn)
    assert sorted(visited) == sorted(lanes)
    assert [lane.priority for lane in visited] == sorted((lane.priority for lane in lanes), reverse=True)


@given(lanes.filter(bool))
def test_every_queue_of_the_top_priority_comes_first_within_a_round(lanes: Sequence[Lane]) -> None:
    top = max(lane.priority for lane in lanes)
    equals = {lane for lane in lanes if lane.priority == top}
    assert {rotation(lanes, turn)[0] for turn in range(len(equals))} == equals
