"""The memory that a child shares with its keeper: what is held, what was begun, and answers that find their lease."""

from __future__ import annotations

import os
import time

import pytest

from pulse_django.queue.words.leases import Claim, Lease
from pulse_django.worker.shared_leases import CAPACITY, HeldLease, SharedLeases
from tests.faults import all_faults

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
        due_epoch=0.0,
    )


@pytest.fixture
def shared_leases() -> SharedLeases:
    return SharedLeases(PREFIX)


def only(shared_leases: SharedLeases) -> HeldLease:
    [held] = shared_leases.held()
    return held


def test_what_is_held_is_seen_with_its_lease(shared_leases: SharedLeases) -> None:
    entry = shared_leases.hold(claim(7, serial=3, attempt=2), 5.0)
    assert only(shared_leases) == HeldLease(only(shared_leases).index, Lease(7, f"{PREFIX}3", 2), False, 5.0, 3)
    entry.begin()
    assert only(shared_leases).begun
    entry.drop()
    assert list(shared_leases.held()) == []


def test_answers_reach_the_lease_that_they_speak_of_and_a_cancellation_stays(shared_leases: SharedLeases) -> None:
    first, second = shared_leases.hold(claim(1), 30), shared_leases.hold(claim(2), 30)
    held = {one.lease.job_id: one for one in shared_leases.held()}
    shared_leases.cancelled([held[1]])
    shared_leases.extended([held[1]], 12.5)
    shared_leases.lost([held[2]])
    assert (first.extended_at(), first.is_cancelled(), first.is_lost()) == (12.5, True, False)
    assert (second.extended_at(), second.is_cancelled(), second.is_lost()) == (0.0, False, True)


def test_an_entry_that_is_used_again_never_shows_an_old_answer() -> None:
    successors = [claim(1, serial=1, attempt=2), claim(1, serial=2, attempt=1), claim(2, serial=1, attempt=1)]
    with all_faults() as about:
        for successor in successors:
            with about(successor):
                shared_leases = SharedLeases(PREFIX)
                entry = shared_leases.hold(claim(1, serial=1, attempt=1), 30)
                before = only(shared_leases)
                for answer in (shared_leases.lost, shared_leases.cancelled):
                    answer([before])
                shared_leases.extended([before], 99.0)
                entry.drop()
                after = shared_leases.hold(successor, 30)
                assert only(shared_leases).index == before.index, "the same entry, or this proves nothing"
                assert (after.extended_at(), after.is_lost(), after.is_cancelled()) == (0.0, False, False)
                shared_leases.extended([before], 100.0)  # a beat that was under way meanwhile
                shared_leases.lost([before])
                assert (after.extended_at(), after.is_lost(), after.is_cancelled()) == (0.0, False, False)
                assert (entry.extended_at(), entry.is_lost(), entry.is_cancelled()) == (0.0, False, False)
                shared_leases.extended([only(shared_leases)], 50.0)
                assert (after.extended_at(), after.is_lost()) == (50.0, False)


def test_the_shortest_lease_is_known(shared_leases: SharedLeases) -> None:
    assert shared_leases.shortest_ttl() == float("inf")
    shared_leases.hold(claim(1), 30)
    short = shared_leases.hold(claim(2), 2)
    assert shared_leases.shortest_ttl() == 2
    short.drop()
    assert shared_leases.shortest_ttl() == 30


def test_there_is_room_for_so_many_and_dropping_one_makes_room(shared_leases: SharedLeases) -> None:
    entries = [shared_leases.hold(claim(number), 30) for number in range(CAPACITY)]
    assert shared_leases.room == 0
    for _ in range(2):  # once is enough
        entries[5].drop()
        assert shared_leases.room == 1
    shared_leases.clear("host:boot.2:")
    assert list(shared_leases.held()) == []
    assert shared_leases.room == CAPACITY
    assert shared_leases.silence() < 1


def test_what_a_process_wrote_is_there_after_its_death_and_answers_reach_it_while_it_lives(
    shared_leases: SharedLeases,
) -> None:
    asks, answers = os.pipe()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            entry = shared_leases.hold(claim(42, serial=9), 3.0)
            entry.begin()
            shared_leases.hold(claim(43, serial=9), 3.0)
            os.write(answers, b"!")
            deadline = time.monotonic() + 20
            while entry.extended_at() != 7.0 and time.monotonic() < deadline:
                time.sleep(0.005)
            code = 0 if entry.extended_at() == 7.0 and entry.is_lost() else 2
        finally:
            os._exit(code)
    assert os.read(asks, 1) == b"!"
    held = {one.lease.job_id: one for one in shared_leases.held()}
    assert (held[42].begun, held[43].begun) == (True, False)
    shared_leases.lost([held[42]])
    shared_leases.extended([held[42]], 7.0)
    assert os.waitpid(pid, 0)[1] == 0
    assert [(one.lease, one.begun) for one in shared_leases.held()] == [
        (Lease(42, f"{PREFIX}9", 1), True),
        (Lease(43, f"{PREFIX}9", 1), False),
    ]
    for end in (asks, answers):
        os.close(end)
