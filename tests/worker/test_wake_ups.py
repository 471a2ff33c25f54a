"""A wake-up reaches one process, and goes on from there while there is more than that one can take."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from pulse_django.conf import PulseSettings
from pulse_django.models import Job, Worker
from pulse_django.queue.words.decisions import Complete, Decision, Postpone, Retry
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import Released
from pulse_django.queue.words.verb_results import Report
from pulse_django.run import notify
from pulse_django.run.notify import ANY_QUEUE, SILENCE, WakeUp, is_due_soon
from pulse_django.run.run import Performed
from pulse_django.worker import claimer as claimer_module
from pulse_django.worker import claimer as passing_on
from pulse_django.worker import reporter as reporter_module
from pulse_django.worker.children import Children
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.listener import Listener
from pulse_django.worker.reporter import Reporter
from pulse_django.worker.run_events import RunEvents
from pulse_django.worker.shared_leases import SharedLeases
from tests.crash.workers import LONG_LEASE, Workers, wait_until
from tests.factories import make_job, now, presence
from tests.faults import all_faults, each_of
from tests.worker import handlers
from tests.worker.steps import claimer_for


class Slot:
    """A place for a child that holds so many leases."""

    def __init__(self, held: int, *, ready: bool = True, draining: bool = False) -> None:
        self.ready, self.is_draining, self.said = ready, draining, []  # type: ignore[var-annotated]
        self.channel = SimpleNamespace(send=self.said.append)
        self._held = held

    def held(self) -> list[None]:
        return [None] * self._held


def wake(slots: list[Slot], queue: str, **options: Any) -> list[list[str]]:
    children: Any = SimpleNamespace(child_slots=slots, stop_by=options.pop("stop_by", None))
    assert Children.wake(children, queue, **options) == any(slot.said for slot in slots)
    assert all(said["following"] == options.get("following") for slot in slots for said in slot.said)
    return [[said["wake"] for said in slot.said] for slot in slots]


def test_the_child_that_holds_least_is_woken_of_those_that_claim_jobs() -> None:
    for others in ([], [Slot(0, ready=False)], [Slot(0, draining=True)]):
        assert wake([Slot(2), Slot(1), *others], "mail") == [[], ["mail"], *([] for _ in others)]
    assert wake([Slot(0, ready=False)], "mail") == [[]]
    assert wake([Slot(0)], "mail", stop_by=1.0) == [[]], "a worker that stops wakes nobody"
    assert wake([Slot(2), Slot(0)], ANY_QUEUE) == [[""], [""]], "any queue may have work"
    full = Slot(0)
    assert wake([full, Slot(1), Slot(3)], "mail", but_not=full, following="mail\x027.2") == [[], ["mail"], []]


@pytest.mark.usefixtures("pulse_db")
class TestAClaimer:
    @pytest.fixture
    def found(self) -> list[tuple[str, bool]]:
        return []

    @pytest.fixture
    def claimer(self, found: list[tuple[str, bool]]) -> Any:
        claimer = claimer_for(2, found_work=lambda queue, more: found.append((queue, more)))
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

    def test_what_the_second_look_finds_counts_as_well_and_nothing_after_it(self, claimer: Any, found: Any) -> None:
        """Otherwise a stream of single jobs uses up the wake-ups in vain: each job is found by the look before."""
        claimer._woken_last, claimer._look_again_at = "mail", 0.0
        claimer._look(1, None)
        make_job(queue="mail")
        claimer._look(1, None)
        assert found == []
        claimer._in_flight.settled(list(claimer._in_flight.active))
        claimer.wake("mail")
        claimer._news.set()
        claimer._look(1, None)
        claimer._woken_last, claimer._look_again_at = "mail", 0.0
        make_job(queue="mail")
        claimer._look(1, None)
        assert found == [("mail", True)]

    @pytest.fixture
    def passed_on(self, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        passed: list[str] = []
        monkeypatch.setattr(claimer_module, "pass_on", lambda alias, payload: passed.append(payload))
        return passed

    def test_one_that_may_have_left_something_wakes_those_that_follow_once(
        self, claimer: Any, passed_on: list[str]
    ) -> None:
        for found, expected in ((1, []), (2, ["mail\x027.2"])):
            for _ in range(found):
                make_job(queue="mail")
            claimer.wake("mail", "mail\x027.2")
            claimer.run_once()
            assert passed_on == expected
            claimer._in_flight.settled(list(claimer._in_flight.active))

    def test_one_without_room_wakes_those_that_follow_a_few_times_a_second(
        self, claimer: Any, passed_on: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(claimer._in_flight, "room", lambda: 0)
        monkeypatch.setattr(claimer, "_until_poll", lambda: 0.0)
        for number in range(3):
            claimer.wake("mail", f"mail\x02{number}.2")
            claimer.run_once()
        assert passed_on == ["mail\x020.2"]
        assert 0 < claimer._wake_others() <= 2 * passing_on.BETWEEN_PASSING_ON
        claimer._following.passed_on_at -= 60
        claimer.run_once()
        assert passed_on == ["mail\x020.2", "mail\x022.2"], "what came too soon is passed on later"
        claimer._following.passed_on_at -= 60
        claimer.run_once()
        assert len(passed_on) == 2, "each only once"
        for _ in range(9):
            claimer._following.passed_on_at -= 60
            claimer.wake("mail", "mail\x025.2")
            claimer.run_once()
        assert claimer._following.between == passing_on.MOST_BETWEEN_PASSING_ON, "seldom while all are busy for long"

    def test_of_two_wake_ups_the_one_that_wakes_more_is_passed_on(self, claimer: Any) -> None:
        claimer.wake("mail", "mail\x021.4")
        claimer.wake("mail", "mail\x022.14")
        claimer.wake("mail", None)
        assert claimer._following.payload == "mail\x021.4"

    def test_jobs_that_are_due_in_a_moment_are_passed_on_when_they_are(
        self, claimer: Any, passed_on: list[str]
    ) -> None:
        claimer.hears = True
        jobs = [make_job(queue="mail", next_run_at=now(timedelta(seconds=0.3))) for _ in range(3)]
        claimer.wake("mail", "mail\x027.2")
        deadline = time.monotonic() + 20
        while not passed_on and time.monotonic() < deadline:
            claimer.run_once()
        assert passed_on == ["mail\x027.2"], jobs


class TestWhoIsWoken:
    def test_whatever_else_is_said_wakes_all(self) -> None:
        payloads = ["", "mail", "mail\x02", "mail\x02x.0", "\x027", "a\nb", "mail\x02" + "9" * 20]
        with all_faults() as about:
            for payload in payloads:
                with about(payload):
                    wake_up = WakeUp.read(payload)
                    assert (wake_up.queue, wake_up.payload) == (payload, payload)
                    assert [wake_up.place_of(rank, 5) for rank in range(5)] == [0] * 5
                    assert wake_up.after(0, 5) is None
        assert WakeUp.new(ANY_QUEUE).payload == ANY_QUEUE

    @each_of("mail", "a.b", "1.2", "über\nmorgen")
    def test_what_is_written_is_read(self, *, queue: Any) -> None:
        wake_up = WakeUp.new(queue)._replace(first=6)
        assert WakeUp.read(wake_up.payload) == wake_up

    @each_of(*range(1, 20), 1_000)
    def test_two_are_woken_and_if_each_passes_it_on_all_are_once(self, *, total: Any) -> None:
        first = WakeUp.new("mail")
        said, woken = [first], []  # type: ignore[var-annotated]
        for steps in range(12):
            places = [(one, one.place_of(rank, total)) for one in said for rank in range(total)]
            now = [(one, place) for one, place in places if place is not None]
            assert steps or len(now) == min(2, total)
            woken += [place for _, place in now]
            said = [following for one, place in now if (following := one.after(place, total)) is not None]
            said = [WakeUp.read(one.payload) for one in said]
        assert sorted(woken) == list(range(total))
        assert said == []

    def test_over_time_all_are_woken_alike(self) -> None:
        woken = Counter(
            rank for _ in range(4_000) for rank in range(8) if WakeUp.new("q").place_of(rank, 8) is not None
        )
        assert set(woken) == set(range(8))
        assert min(woken.values()) > 700


@pytest.mark.usefixtures("pulse_db")
def test_a_worker_learns_which_one_it_is_of_those_that_serve_the_same_queues() -> None:
    def note(name: str, *queues: str) -> tuple[int, int]:
        standing = Worker.objects.note(replace(presence(name), queues=queues))
        return standing.rank, standing.total

    assert note("a") == (0, 1)
    assert note("b") == (1, 2)
    assert note("of-mail", "mail") == (0, 1)
    assert note("c") == (2, 3)
    assert note("a") == (0, 3)
    Worker.objects.farewell("a", "b")
    assert note("b") == (0, 2), "the one that said goodbye does not count"
    Worker.objects.filter(name="c").update(last_beat_at=now(timedelta(hours=-1)))
    assert note("b") == (0, 1), "nor one that fell silent"


@pytest.mark.usefixtures("pulse_db")
def test_while_the_workers_that_are_woken_are_busy_another_one_runs_the_job(workers: Workers) -> None:
    """They poll once in a minute: what is not passed on is not run in time."""
    seldom = LONG_LEASE | {"POLL_INTERVAL": 60, "HEARTBEAT_INTERVAL": 0.2}
    fleet = [workers.ready("--concurrency", "1", settings=seldom) for _ in range(4)]
    for worker in fleet:
        wait_until(lambda worker=worker: worker.says("Listening for wake-ups"), lambda worker=worker: worker.log)
    wait_until(lambda: set(Worker.objects.values_list("stopped_at", flat=True)) == {None})
    for free in (3, 2, 1):
        handlers.naps.enqueue(30)
        wait_until(lambda free=free: workers.trace.count("begin").total() == 4 - free, patience=20)
    for _ in range(5):
        quick = handlers.writes_a_line.enqueue().id
        wait_until(lambda quick=quick: bool(workers.trace.of(quick, "ran")), patience=20)


@pytest.mark.usefixtures("pulse_db")
class TestPolls:
    def test_while_wake_ups_are_heard_four_of_five_polls_are_left_out(self) -> None:
        claimer = claimer_for()
        interval = PulseSettings().poll_interval.total_seconds()
        assert 0.8 * interval <= claimer._until_poll() <= interval
        claimer.hears = True
        assert 4 * interval <= claimer._until_poll() <= 5 * interval
        claimer.look_soon()  # for a job that runs again: its next run may be due long before the next poll
        assert not claimer._news.is_set(), "it is at work, and will look anyway"
        claimer._waits_for_slots = True
        claimer.look_soon()
        assert claimer._news.is_set()

    def test_children_are_told_whether_wake_ups_are_heard(self) -> None:
        slots = [Slot(0), Slot(0, ready=False)]
        Children.listens(SimpleNamespace(child_slots=slots), 0, True)  # type: ignore[arg-type]
        assert [slot.said for slot in slots] == [[{"hears": True, "shard": 0}], []]

    def test_a_listener_tells_each_change_once(self) -> None:
        told: list[bool] = []
        listener = Listener("default", (), lambda queue: None, hears_changed=told.append)
        for hears in (True, True, False, False, True):
            listener._note(hears)
        listener.hang_up()
        assert told == [True, False, True, False]


@pytest.mark.usefixtures("pulse_db")
class TestReports:
    @pytest.mark.parametrize(
        ("decision", "told", "notified"),
        [
            (Retry(timedelta(seconds=1), "again"), ["due again"], []),
            (Postpone(timedelta()), ["due again"], [["mail"]]),
            (Complete(), [], []),
        ],
        ids=["to its own claimer", "what can run at once to all", "a completion to nobody"],
    )
    def test_whom_a_report_is_told_to(
        self, monkeypatch: pytest.MonkeyPatch, decision: Decision, told: list[str], notified: list[list[str]]
    ) -> None:
        here: list[str] = []
        everywhere: list[list[str]] = []
        monkeypatch.setattr(reporter_module, "wake_workers", lambda alias, queues: everywhere.append(sorted(queues)))
        make_job(queue="mail")
        in_flight = InFlight(SharedLeases("w:boot:"), "default", 2)
        [run] = in_flight.take(Job.objects.claim(Identity("w", "boot")), time.monotonic())
        database = GuardedConnection("default", "reports")
        reporter = Reporter(database, in_flight, lambda: None, RunEvents(), lambda: here.append("due again"))
        reporter.report(Performed(run, None, Report(run.claim.lease, Released(), decision)))
        reporter.run_once()
        database.hang_up()
        assert (here, everywhere) == (told, notified)


@each_of(
    (None, True),
    (timedelta(seconds=2), True),
    (timedelta(hours=1), False),
    (datetime(2031, 1, 1, tzinfo=UTC), True),  # the database has the clock: a worker finds out,
)
def test_jobs_that_are_due_soon_wake_workers(*, run_after: Any, is_soon: Any) -> None:
    assert is_due_soon(run_after) == is_soon


def test_workers_are_notified_after_the_commit_in_another_transaction_and_once_in_a_moment(
    pulse_db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(notify, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(notify, "_notified_at", {})
    with CaptureQueriesContext(connection) as queries:

        def notified() -> list[str]:
            return [one["sql"] for one in queries.captured_queries if "pg_notify" in one["sql"]]

        with transaction.atomic():
            for _ in range(2):
                handlers.writes_a_line.enqueue()
            assert notified() == []
        [alone] = notified()
        assert alone.startswith("BEGIN; SET LOCAL synchronous_commit = off; ")
        for passed, number in ((0.0, 1), (SILENCE, 2)):
            clock[0] += passed
            handlers.writes_a_line.enqueue()
            assert len(notified()) == number
