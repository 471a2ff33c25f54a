"""The memory that a child shares with its keeper: what is held, what was begun, and answers that find their lease."""

from __future__ import annotations

import os
import time

import pytest

from pulse_django.words.leases import Claim, Lease
from pulse_django.worker.shared_leases import CAPACITY, HeldLease, SharedLeases

PREFIX = "host:boot.1:"


def claim(job_id: int = 1, *, serial: int = 1, attempt: int = 1, ttl: float = 30.0) -> Claim:
    return Claim(
        lease=Lease(job_id, f"{PREFIX}{serial}", attempt),
        token=1,
        task="a",
        queue="default",
        priority=0,
        args_json="[]",
        kwargs_json="{}",
        progress_json=None,
        refunds=0,
        max_attempts=1,
        losses=0,
        ttl_seconds=ttl,
        parent_id=None,
        created_epoch=0.0,
        started_epoch=0.0,
        timeout=None,
        stall_after=None,
    )


@pytest.fixture
def holdings() -> SharedLeases:
    return SharedLeases(PREFIX)


def only(holdings: SharedLeases) -> HeldLease:
    [held] = holdings.held()
    return held


def test_what_is_held_is_seen_with_its_lease(holdings: SharedLeases) -> None:
    entry = holdings.hold(claim(7, serial=3, attempt=2), 5.0)
    assert only(holdings) == HeldLease(only(holdings).index, Lease(7, f"{PREFIX}3", 2), False, 5.0, 3)
    entry.begin()
    assert only(holdings).begun
    entry.drop()
    assert list(holdings.held()) == []


def test_answers_reach_the_lease_that_they_speak_of(holdings: SharedLeases) -> None:
    first, second = holdings.hold(claim(1), 30), holdings.hold(claim(2), 30)
    held = {one.lease.job_id: one for one in holdings.held()}
    holdings.extended([held[1]], 12.5)
    holdings.cancelled([held[1]])
    holdings.lost([held[2]])
    assert (first.extended_at(), first.is_cancelled(), first.is_lost()) == (12.5, True, False)
    assert (second.extended_at(), second.is_cancelled(), second.is_lost()) == (0.0, False, True)


def test_a_later_beat_keeps_what_an_earlier_one_said_of_a_cancellation(holdings: SharedLeases) -> None:
    entry = holdings.hold(claim(), 30)
    holdings.cancelled([only(holdings)])
    holdings.extended([only(holdings)], 20.0)
    assert entry.is_cancelled()
    assert entry.extended_at() == 20.0


@pytest.mark.parametrize(
    "successor", [claim(1, serial=1, attempt=2), claim(1, serial=2, attempt=1), claim(2, serial=1, attempt=1)]
)
def test_an_entry_that_is_used_again_never_shows_an_old_answer(holdings: SharedLeases, successor: Claim) -> None:
    entry = holdings.hold(claim(1, serial=1, attempt=1), 30)
    before = only(holdings)
    for answer in (holdings.lost, holdings.cancelled):
        answer([before])
    holdings.extended([before], 99.0)
    entry.drop()
    after = holdings.hold(successor, 30)
    assert only(holdings).index == before.index, "the same entry, or this proves nothing"
    assert (after.extended_at(), after.is_lost(), after.is_cancelled()) == (0.0, False, False)
    holdings.extended([before], 100.0)  # a beat that was under way meanwhile
    holdings.lost([before])
    assert (after.extended_at(), after.is_lost(), after.is_cancelled()) == (0.0, False, False)
    assert (entry.extended_at(), entry.is_lost(), entry.is_cancelled()) == (0.0, False, False)


def test_an_answer_to_the_successor_is_not_mixed_with_what_was_said_before(holdings: SharedLeases) -> None:
    entry = holdings.hold(claim(1), 30)
    holdings.lost([only(holdings)])
    entry.drop()
    after = holdings.hold(claim(2), 30)
    holdings.extended([only(holdings)], 50.0)
    assert (after.extended_at(), after.is_lost()) == (50.0, False)


def test_the_shortest_lease_is_known(holdings: SharedLeases) -> None:
    assert holdings.shortest_ttl() == float("inf")
    holdings.hold(claim(1), 30)
    short = holdings.hold(claim(2), 2)
    assert holdings.shortest_ttl() == 2
    short.drop()
    assert holdings.shortest_ttl() == 30


def test_there_is_room_for_so_many_and_dropping_one_makes_room(holdings: SharedLeases) -> None:
    entries = [holdings.hold(claim(number), 30) for number in range(CAPACITY)]
    assert holdings.room == 0
    entries[5].drop()
    assert holdings.room == 1
    entries[5].drop()  # once is enough
    assert holdings.room == 1


def test_clearing_forgets_the_child_that_was(holdings: SharedLeases) -> None:
    holdings.hold(claim(1), 30)
    holdings.clear("host:boot.2:")
    assert list(holdings.held()) == []
    assert holdings.room == CAPACITY
    assert holdings.silence() < 1


def test_what_a_process_wrote_is_there_after_its_death_and_answers_reach_it_while_it_lives(
    holdings: SharedLeases,
) -> None:
    asks, answers = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            entry = holdings.hold(claim(42, serial=9), 3.0)
            entry.begin()
            holdings.hold(claim(43, serial=9), 3.0)
            os.write(answers, b"!")
            deadline = time.monotonic() + 20
            while entry.extended_at() != 7.0 and time.monotonic() < deadline:
                time.sleep(0.005)
            code = 0 if entry.extended_at() == 7.0 and entry.is_lost() else 2
        finally:
            os._exit(code)
    assert os.read(asks, 1) == b"!"
    held = {one.lease.job_id: one for one in holdings.held()}
    assert (held[42].begun, held[43].begun) == (True, False)
    holdings.lost([held[42]])
    holdings.extended([held[42]], 7.0)
    assert os.waitpid(pid, 0)[1] == 0
    assert [(one.lease, one.begun) for one in holdings.held()] == [
        (Lease(42, f"{PREFIX}9", 1), True),
        (Lease(43, f"{PREFIX}9", 1), False),
    ]
    for end in (asks, answers):
        os.close(end)
