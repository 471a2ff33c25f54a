"""How much a child takes: what can begin soon, more while jobs prove short, and nothing whose lease is gone."""

from __future__ import annotations

import time

import pytest

from pulse_django.execution.run import Run
from pulse_django.words.leases import Claim
from pulse_django.worker.in_flight import (
    FIRST_PREFETCH,
    HORIZON,
    MOST_AT_ONCE,
    MOST_BYTES,
    MOST_UNREPORTED,
    PATIENCE_WITH_OVERSTAYERS,
    InFlight,
)
from pulse_django.worker.overstayers import Overstayers
from pulse_django.worker.shared_leases import SharedLeases
from tests.worker.test_shared_leases import PREFIX, claim

SLOTS = 8


@pytest.fixture
def hand() -> InFlight:
    return InFlight(SharedLeases(PREFIX), "default", SLOTS)


def take(hand: InFlight, count: int, *, ttl: float = 30.0, granted_ago: float = 0.0) -> list[Run]:
    claims: list[Claim] = [claim(number + 1, ttl=ttl) for number in range(count)]
    return hand.take(claims, time.monotonic() - granted_ago)


def finish(hand: InFlight, runs: list[Run]) -> None:
    for run in runs:
        hand.ended(run)
    hand.settled(runs)


def test_without_experience_there_is_room_for_as_many_as_there_are_slots(hand: InFlight) -> None:
    assert hand.room() == SLOTS
    runs = take(hand, 5)
    assert hand.room() == SLOTS - 5
    finish(hand, runs)
    assert hand.room() == SLOTS
    assert hand.is_idle


def test_the_prefetch_grows_while_jobs_prove_short(hand: InFlight) -> None:
    rooms = []
    for _ in range(8):
        hand.learn([0.0001] * 10)
        rooms.append(hand.room())
    assert rooms[0] == SLOTS + FIRST_PREFETCH
    assert rooms == sorted(rooms)
    assert rooms[-1] == MOST_AT_ONCE


def test_the_prefetch_is_no_more_than_begins_within_its_horizon(hand: InFlight) -> None:
    for _ in range(50):
        hand.learn([HORIZON / 2])
    assert hand.room() <= SLOTS + 2 * SLOTS + 1


def test_one_long_job_ends_the_prefetch(hand: InFlight) -> None:
    for _ in range(8):
        hand.learn([0.0001])
    hand.learn([0.0001, HORIZON * 2])
    assert hand.room() == SLOTS


def test_a_handler_that_is_taking_long_ends_the_prefetch_before_it_is_over(hand: InFlight) -> None:
    for _ in range(8):
        hand.learn([0.0001])
    hand.slow_down()
    assert hand.room() == SLOTS


def test_a_claim_is_put_off_until_it_is_worth_a_statement(hand: InFlight) -> None:
    for _ in range(8):
        hand.learn([0.0001])
    runs: list[Run] = []
    while room := hand.room():
        runs += take(hand, room)
    finish(hand, runs[:1])
    assert hand.room() == 0, "room for one more is not worth asking"
    finish(hand, runs[1:])
    assert hand.room() == MOST_AT_ONCE


def test_stuck_slots_are_not_filled(hand: InFlight) -> None:
    runs = take(hand, SLOTS)
    for run in runs[:-1]:
        hand.given_up(run)
        hand.settled([run])
    assert not hand.is_used_up
    finish(hand, runs[-1:])
    assert hand.room() == 1
    assert not hand.is_idle or hand.stuck
    hand.given_up(take(hand, 1)[0])
    assert hand.is_used_up
    hand.ended(runs[0])  # it came back after all
    assert len(hand.stuck) == SLOTS - 1


def test_so_many_jobs_and_no_more() -> None:
    hand = InFlight(SharedLeases(PREFIX), "default", SLOTS, max_jobs=10)
    assert hand.room() == SLOTS
    first = take(hand, 8)
    assert hand.room() == 0
    finish(hand, first)
    assert hand.room() == 2
    take(hand, 2)
    assert hand.is_used_up


def test_reports_that_nobody_takes_end_the_claims(hand: InFlight) -> None:
    for number in range(0, MOST_UNREPORTED, SLOTS):
        for run in hand.take([claim(number + one) for one in range(1, SLOTS + 1)], time.monotonic()):
            hand.ended(run)
    assert hand.room() == 0


def test_a_job_whose_lease_ran_out_while_it_waited_is_never_begun(hand: InFlight) -> None:
    [late] = take(hand, 1, ttl=1.0, granted_ago=1.5)
    [good] = take(hand, 1, ttl=1.0)
    assert not hand.begin(late)
    assert hand.begin(good)


def test_a_job_whose_lease_was_lost_while_it_waited_is_never_begun() -> None:
    holdings = SharedLeases(PREFIX)
    hand = InFlight(holdings, "default", SLOTS)
    [run] = take(hand, 1, granted_ago=5.0)
    holdings.lost(list(holdings.held()))
    assert not hand.begin(run)


def test_the_keeper_sees_what_was_begun_and_what_is_over() -> None:
    holdings = SharedLeases(PREFIX)
    hand = InFlight(holdings, "default", SLOTS)
    runs = take(hand, 2)
    hand.begin(runs[0])
    assert [held.begun for held in holdings.held()] == [True, False]
    hand.ended(runs[0])
    assert len(list(holdings.held())) == 2, "it is held until its report was heard"
    hand.settled(runs)
    assert list(holdings.held()) == []


def test_with_large_payloads_in_hand_nothing_more_is_claimed(hand: InFlight) -> None:
    large = [claim(number + 1)._replace(args_json="x" * (MOST_BYTES // 2)) for number in range(2)]
    first = hand.take(large[:1], time.monotonic())
    assert hand.room() == SLOTS - 1
    second = hand.take(large[1:], time.monotonic())
    assert hand.room() == 0
    hand.ended(first[0])
    assert hand.room() == 0, "it is still to be reported"
    hand.settled(first)
    assert hand.room() == SLOTS - 1
    finish(hand, second)
    assert hand.room() == SLOTS


def two_children() -> tuple[InFlight, InFlight]:
    shared = Overstayers(2, SLOTS)
    return tuple(InFlight(SharedLeases(PREFIX, shared, index), "default", SLOTS) for index in range(2))  # type: ignore[return-value]


def again(job_id: int) -> Claim:
    """The claim of a retry."""
    return claim(job_id)._replace(lease=claim(job_id).lease._replace(attempt=2))


def test_a_retry_is_not_begun_in_any_child_while_the_handler_past_its_deadline_goes_on() -> None:
    first, second = two_children()
    [slow] = take(first, 1)
    assert first.begin(slow)
    first.overstays(slow)
    first.given_up(slow)
    first.settled([slow])
    for child in (first, second):
        [retry] = child.take([again(1)], time.monotonic())
        assert not child.begin(retry)
        assert child.would_overtake(retry)
        finish(child, [retry])
    first.ended(slow)
    [retry] = second.take([again(1)], time.monotonic())
    assert second.begin(retry)


def test_other_jobs_and_a_child_that_was_replaced_are_not_held_up() -> None:
    first, second = two_children()
    [slow] = take(first, 1)
    first.begin(slow)
    first.overstays(slow)
    [other] = second.take([again(2)], time.monotonic())
    assert second.begin(other)
    first._holdings.clear(PREFIX)  # its process is gone, and the thread with it
    [retry] = second.take([again(1)], time.monotonic())
    assert second.begin(retry)


def test_a_run_that_ended_in_that_moment_leaves_no_mark() -> None:
    first, second = two_children()
    [slow] = take(first, 1)
    first.begin(slow)
    first.ended(slow)
    first.overstays(slow)
    [retry] = second.take([again(1)], time.monotonic())
    assert second.begin(retry)


def test_an_idle_child_is_replaced_when_a_retry_has_waited_long_for_its_thread(hand: InFlight) -> None:
    [slow] = take(hand, 1)
    hand.begin(slow)
    hand.overstays(slow)
    hand.given_up(slow)
    hand.settled([slow])
    later = time.monotonic() + PATIENCE_WITH_OVERSTAYERS + 1
    assert not hand.blocks_a_retry(later), "nothing waits for it"
    [retry] = hand.take([again(1)], time.monotonic())
    assert not hand.begin(retry)
    assert not hand.blocks_a_retry(later), "it is not idle"
    finish(hand, [retry])
    assert not hand.blocks_a_retry(time.monotonic()), "not for long"
    assert hand.blocks_a_retry(later)
    hand.ended(slow)
    assert not hand.blocks_a_retry(later)
