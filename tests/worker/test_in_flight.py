"""How much a child takes: what can begin soon, more while jobs prove short, and nothing whose lease is gone."""

from __future__ import annotations

import time
from datetime import timedelta

import pytest

from pulse_django.queue.words.leases import Claim
from pulse_django.queue.words.options import ClaimedOptions
from pulse_django.run.run import Run
from pulse_django.worker.in_flight import (
    FIRST_PREFETCH,
    HORIZON,
    MOST_AT_ONCE,
    MOST_BYTES,
    MOST_UNREPORTED,
    PATIENCE_WITH_OVERDUE_RUNS,
    InFlight,
)
from pulse_django.worker.shared_leases import OverdueHandlers, SharedLeases
from tests.worker.test_shared_leases import PREFIX, claim

SLOTS = 8


@pytest.fixture
def in_flight() -> InFlight:
    return InFlight(SharedLeases(PREFIX), "default", SLOTS)


def take(in_flight: InFlight, count: int, *, ttl: float = 30.0, granted_ago: float = 0.0) -> list[Run]:
    claims: list[Claim] = [claim(number + 1, ttl=ttl) for number in range(count)]
    return in_flight.take(claims, time.monotonic() - granted_ago)


def finish(in_flight: InFlight, runs: list[Run]) -> None:
    for run in runs:
        in_flight.ended(run)
    in_flight.settled(runs)


def test_without_experience_there_is_room_for_as_many_as_there_are_slots(in_flight: InFlight) -> None:
    assert in_flight.room() == SLOTS
    runs = take(in_flight, 5)
    assert in_flight.room() == SLOTS - 5
    finish(in_flight, runs)
    assert in_flight.room() == SLOTS
    assert in_flight.is_idle


def test_the_prefetch_grows_while_jobs_prove_short_and_one_long_job_ends_it(in_flight: InFlight) -> None:
    rooms = []
    for _ in range(8):
        in_flight.prefetch.learn([0.0001] * 10)
        rooms.append(in_flight.room())
    assert rooms[0] == SLOTS + FIRST_PREFETCH
    assert rooms == sorted(rooms)
    assert rooms[-1] == MOST_AT_ONCE
    in_flight.prefetch.learn([0.0001, HORIZON * 2])
    assert in_flight.room() == SLOTS
    for _ in range(50):
        in_flight.prefetch.learn([HORIZON / 2])
    assert in_flight.room() <= SLOTS + 2 * SLOTS + 1, "no more than begins within the horizon"


def test_a_claim_is_put_off_until_it_is_worth_a_statement(in_flight: InFlight) -> None:
    for _ in range(8):
        in_flight.prefetch.learn([0.0001])
    runs: list[Run] = []
    while room := in_flight.room():
        runs += take(in_flight, room)
    finish(in_flight, runs[:1])
    assert in_flight.room() == 0, "room for one more is not worth asking"
    finish(in_flight, runs[1:])
    assert in_flight.room() == MOST_AT_ONCE


def test_stuck_slots_are_not_filled(in_flight: InFlight) -> None:
    runs = take(in_flight, SLOTS)
    for run in runs[:-1]:
        in_flight.given_up(run)
        in_flight.settled([run])
    assert not in_flight.is_used_up
    finish(in_flight, runs[-1:])
    assert in_flight.room() == 1
    assert not in_flight.is_idle or in_flight.stuck
    in_flight.given_up(take(in_flight, 1)[0])
    assert in_flight.is_used_up
    in_flight.ended(runs[0])  # it came back after all
    assert len(in_flight.stuck) == SLOTS - 1


def test_so_many_jobs_and_no_more() -> None:
    in_flight = InFlight(SharedLeases(PREFIX), "default", SLOTS, max_jobs=10)
    assert in_flight.room() == SLOTS
    first = take(in_flight, 8)
    assert in_flight.room() == 0
    finish(in_flight, first)
    assert in_flight.room() == 2
    take(in_flight, 2)
    assert in_flight.is_used_up


def test_reports_that_nobody_takes_end_the_claims(in_flight: InFlight) -> None:
    for number in range(0, MOST_UNREPORTED, SLOTS):
        for run in in_flight.take([claim(number + one) for one in range(1, SLOTS + 1)], time.monotonic()):
            in_flight.ended(run)
    assert in_flight.room() == 0


def test_a_job_whose_lease_ran_out_while_it_waited_is_never_begun(in_flight: InFlight) -> None:
    [late] = take(in_flight, 1, ttl=1.0, granted_ago=1.5)
    [good] = take(in_flight, 1, ttl=1.0)
    timed = claim(2)._replace(options=ClaimedOptions(timeout=timedelta(seconds=1)))
    [overdue] = in_flight.take([timed], time.monotonic() - 2.0)
    assert not in_flight.begin(late)
    assert not in_flight.begin(overdue), "its own time is up"
    assert in_flight.begin(good)
    [lost] = take(in_flight, 1, granted_ago=5.0)
    in_flight._shared_leases.lost(list(in_flight._shared_leases.held()))
    assert not in_flight.begin(lost)


def test_the_keeper_sees_what_was_begun_and_what_is_over() -> None:
    shared_leases = SharedLeases(PREFIX)
    in_flight = InFlight(shared_leases, "default", SLOTS)
    runs = take(in_flight, 2)
    in_flight.begin(runs[0])
    assert [held.begun for held in shared_leases.held()] == [True, False]
    in_flight.ended(runs[0])
    assert len(list(shared_leases.held())) == 2, "it is held until its report was heard"
    in_flight.settled(runs)
    assert list(shared_leases.held()) == []


def test_with_large_payloads_in_hand_nothing_more_is_claimed(in_flight: InFlight) -> None:
    large = [claim(number + 1)._replace(args_json="x" * (MOST_BYTES // 2)) for number in range(2)]
    first = in_flight.take(large[:1], time.monotonic())
    assert in_flight.room() == SLOTS - 1
    second = in_flight.take(large[1:], time.monotonic())
    assert in_flight.room() == 0
    in_flight.ended(first[0])
    assert in_flight.room() == 0, "it is still to be reported"
    in_flight.settled(first)
    assert in_flight.room() == SLOTS - 1
    finish(in_flight, second)
    assert in_flight.room() == SLOTS


def two_children() -> tuple[InFlight, InFlight]:
    shared = OverdueHandlers(2)
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
    [slow, quick] = take(first, 2)
    for run in (slow, quick):
        first.begin(run)
    first.ended(quick)
    for run in (slow, quick):
        first.overstays(run)
    for job_id in (2, 3):
        [other] = second.take([again(job_id)], time.monotonic())
        assert second.begin(other), "a run that ended in that moment leaves no mark"
    first._shared_leases.clear(PREFIX)  # its process is gone, and the thread with it
    [retry] = second.take([again(1)], time.monotonic())
    assert second.begin(retry)


def test_an_idle_child_is_replaced_when_a_retry_has_waited_long_for_its_thread(in_flight: InFlight) -> None:
    [slow] = take(in_flight, 1)
    in_flight.begin(slow)
    in_flight.overstays(slow)
    in_flight.given_up(slow)
    in_flight.settled([slow])
    later = time.monotonic() + PATIENCE_WITH_OVERDUE_RUNS + 1
    assert not in_flight.blocks_a_retry(later), "nothing waits for it"
    [retry] = in_flight.take([again(1)], time.monotonic())
    assert not in_flight.begin(retry)
    assert not in_flight.blocks_a_retry(later), "it is not idle"
    finish(in_flight, [retry])
    assert not in_flight.blocks_a_retry(time.monotonic()), "not for long"
    assert in_flight.blocks_a_retry(later)
    in_flight.ended(slow)
    assert not in_flight.blocks_a_retry(later)
