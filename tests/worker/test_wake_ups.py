"""A wake-up reaches one process, and goes on from there while there is more than that one can take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pulse_django.conf import PulseSettings
from pulse_django.execution.notify import ANY_QUEUE
from pulse_django.words.identity import Identity
from pulse_django.worker.children import Children
from pulse_django.worker.claimer import Claimer
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from pulse_django.worker.worker_options import WorkerOptions
from tests.factories import make_job
from tests.worker.test_shared_leases import PREFIX, claim


class Slot:
    """A place for a child that holds so many leases."""

    def __init__(self, held: int, *, ready: bool = True) -> None:
        self.ready, self.said = ready, []  # type: ignore[var-annotated]
        self.channel = SimpleNamespace(send=self.said.append)
        self.shared_leases = SharedLeases(PREFIX)
        for number in range(held):
            self.shared_leases.hold(claim(number + 1), 30.0)


def wake(slots: list[Slot], queue: str, **options: Any) -> list[list[Any]]:
    Children.wake(SimpleNamespace(child_slots=slots), queue, **options)  # type: ignore[arg-type]
    return [slot.said for slot in slots]


def test_the_child_that_holds_least_is_woken() -> None:
    assert wake([Slot(2), Slot(0), Slot(1)], "mail") == [[], [{"wake": "mail"}], []]


def test_one_that_is_not_ready_is_not_woken() -> None:
    assert wake([Slot(2), Slot(0, ready=False)], "mail") == [[{"wake": "mail"}], []]
    assert wake([Slot(0, ready=False)], "mail") == [[]]


def test_all_are_woken_where_any_queue_may_have_work() -> None:
    assert wake([Slot(2), Slot(0)], ANY_QUEUE) == [[{"wake": ""}], [{"wake": ""}]]


def test_what_one_has_no_room_for_wakes_another() -> None:
    full = Slot(0)
    assert wake([full, Slot(1), Slot(3)], "mail", but_not=full) == [[], [{"wake": "mail"}], []]


@pytest.mark.usefixtures("pulse_db")
class TestAClaimer:
    @pytest.fixture
    def found(self) -> list[tuple[str, bool]]:
        return []

    @pytest.fixture
    def claimer(self, found: list[tuple[str, bool]]) -> Any:
        identity = Identity("w")
        in_flight = InFlight(SharedLeases(f"{identity.name}:{identity.boot_id}:"), "default", 2)
        claimer = Claimer(
            WorkerOptions.of(PulseSettings(), "w", {}), GuardedConnection("default", "claims"), identity, in_flight,
            lambda runs: None, lambda queue, more: found.append((queue, more)), lambda: None,
        )  # fmt: skip
        yield claimer
        claimer.database.hang_up()

    def test_says_that_a_wake_up_found_work_and_whether_there_may_be_more(self, claimer: Any, found: Any) -> None:
        make_job(queue="mail")
        claimer.wake("mail")
        claimer.run_once()
        assert found == [("mail", False)]
        for _ in range(3):
            make_job(queue="mail")
        claimer.wake("mail")
        claimer.run_once()
        assert found[1:] == [("mail", True)], "it had room for one more"

    def test_what_the_second_look_finds_counts_as_well(self, claimer: Any, found: Any) -> None:
        """Otherwise a stream of single jobs uses up the wake-ups in vain: each job is found by the look before."""
        claimer.wake("mail")
        claimer._news.set()
        claimer._look(1, None)
        claimer._woken_last, claimer._look_again_at = "mail", 0.0
        make_job(queue="mail")
        claimer._look(1, None)
        assert found == [("mail", True)]

    def test_after_the_second_look_nothing_was_woken(self, claimer: Any, found: Any) -> None:
        claimer._woken_last, claimer._look_again_at = "mail", 0.0
        claimer._look(1, None)
        make_job(queue="mail")
        claimer._look(1, None)
        assert found == []
