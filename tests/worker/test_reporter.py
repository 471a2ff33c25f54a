"""The reporter: what it was given is reported until somebody has heard it, and what is worth nothing is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db import OperationalError, connections

from pulse_django import api
from pulse_django.managers import JobManager
from pulse_django.models import Attempt, Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import perform
from pulse_django.run.run import Performed, Run
from pulse_django.worker.channel import from_wire, to_wire
from pulse_django.worker.guarded_connection import keep_calling
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from tests.crash.workers import PATIENCE, wait_until
from tests.factories import make_job
from tests.rival import Rival
from tests.worker.steps import reporter_for

pytestmark = pytest.mark.usefixtures("pulse_db")


class Bench:
    """A reporter with a thread of its own, and runs to give it."""

    def __init__(self) -> None:
        self.identity = Identity("bench", "boot")
        self.in_flight = InFlight(SharedLeases("bench:boot:"), "default", slots=10)
        self.freed = 0
        self.reporter = reporter_for(self.in_flight, self._freed)
        self.over = threading.Event()
        self._thread = threading.Thread(target=self._serve)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.over.set()
        self.reporter.interrupt()
        if self._thread.ident is not None:
            self._thread.join(20)
        assert not self._thread.is_alive()

    def performed(self, count: int = 1) -> list[Performed]:
        for number in range(count):
            make_job(task="testproject.shop.tasks.add", args=[number, 1])
        claims = Job.objects.claim(self.identity, limit=count)
        runs = self.in_flight.take(claims, granted_at=time.monotonic())
        return [self._perform(run) for run in runs]

    def _perform(self, run: Run) -> Performed:
        assert self.in_flight.begin(run)
        performed = perform(run)
        performed.ended_at = time.monotonic()
        self.in_flight.ended(run)
        return performed

    def _freed(self) -> None:
        self.freed += 1

    def _serve(self) -> None:
        keep_calling(self.reporter.database, self.over, self.reporter.run_once)

    def report(self, *ended: Performed) -> None:
        """Start, and report these."""
        self.start()
        for performed in ended:
            self.reporter.report(performed)

    def wait_until_idle(self, patience: float = PATIENCE) -> None:
        wait_until(lambda: self.in_flight.is_idle, patience=patience)


@pytest.fixture
def bench() -> Iterator[Bench]:
    bench = Bench()
    yield bench
    bench.end()


def settles_counted(monkeypatch: pytest.MonkeyPatch, before: Callable[[int], None] = lambda _: None) -> list[int]:
    """Note how many reports each settle carries, before anything else happens."""
    sizes: list[int] = []
    settle = JobManager.settle

    def counting(self: Any, reports: Any, **kwargs: Any) -> Any:
        sizes.append(len(reports))
        before(len(sizes))
        return settle(self, reports, **kwargs)

    monkeypatch.setattr(JobManager, "settle", counting)
    return sizes


def test_a_report_that_did_not_arrive_is_sent_again(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_twice(turn: int) -> None:
        if turn <= 2:
            raise OperationalError("gone")

    sizes = settles_counted(monkeypatch, fails_twice)
    [performed] = bench.performed()
    bench.report(performed)
    bench.wait_until_idle()
    assert Job.objects.get().status == Status.COMPLETED
    assert sizes == [1, 1, 1]
    assert bench.freed


def test_an_answer_that_was_lost_does_not_count_twice(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    settle, lost = JobManager.settle, []

    def settled_in_silence(self: Any, reports: Any, **kwargs: Any) -> Any:
        answer = settle(self, reports, **kwargs)
        if not lost:
            lost.append(answer)
            connections["default"].close()
            raise OperationalError("the answer was lost")
        return answer

    monkeypatch.setattr(JobManager, "settle", settled_in_silence)
    bench.report(*bench.performed())
    bench.wait_until_idle()
    assert lost
    attempt = Attempt.objects.get()
    assert (attempt.outcome, attempt.late_outcome) == ("SUCCEEDED", "")


def test_a_report_waits_for_a_locked_row_and_no_other_report_does(bench: Bench, rival: Rival) -> None:
    """Also when the worker is stopping."""
    locked, free = bench.performed(2)
    rival.lock_row(locked.run.claim.job_id)
    bench.report(locked, free)
    wait_until(lambda: Job.objects.get(pk=free.run.claim.job_id).status == Status.COMPLETED)
    with pytest.raises(AssertionError):
        wait_until(lambda: bench.reporter.is_idle and bench.in_flight.is_idle, patience=0.4)
    assert Job.objects.get(pk=locked.run.claim.job_id).status == Status.RUNNING
    rival.rollback()
    bench.wait_until_idle()
    assert Job.objects.get(pk=locked.run.claim.job_id).status == Status.COMPLETED


def test_a_flood_is_reported_in_few_statements(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = settles_counted(monkeypatch)
    for performed in bench.performed(100):
        bench.reporter.report(performed)
    bench.start()
    bench.wait_until_idle()
    assert sum(sizes) == 100
    assert len(sizes) <= 3
    assert Job.objects.filter(status=Status.COMPLETED).count() == 100
    bench.reporter.report(*bench.performed())
    bench.wait_until_idle(patience=2)  # a lone one is sent at once


def test_what_is_too_much_for_one_message_to_the_keeper_is_several_of_one_round(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run may have two reports, of its time limit and of its handler: one of them alone must not be sent again."""
    monkeypatch.setattr("pulse_django.worker.reporter.MOST_RELAYED", 2)
    sizes: list[int] = []

    def settle(message: Any) -> None:
        reports = from_wire(message["reports"])
        sizes.append(len(reports))
        settled = Job.objects.settle(reports)
        bench.reporter.answers.put({"settled": to_wire(settled), "number": message["number"]})

    bench.reporter.goes_through_keeper, bench.reporter._tell = True, settle
    for performed in bench.performed(5):
        bench.reporter.report(performed)
    bench.reporter.run_once()
    assert sizes == [2, 2, 1]
    assert bench.reporter.is_idle
    assert set(Job.objects.values_list("status", flat=True)) == {Status.COMPLETED}


def out_of_touch(performed: Performed) -> None:
    """Let its lease have run out by our own clock."""
    performed.run._extended_at -= performed.run.claim.ttl_seconds + 1.0
    performed.run.granted_at = performed.run._extended_at


def test_a_run_whose_lease_ran_out_by_our_own_clock_waits_for_a_beat_that_comes_through(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = settles_counted(monkeypatch)
    waiting, other = bench.performed(2)
    out_of_touch(waiting)
    bench.report(waiting, other)
    wait_until(lambda: Job.objects.get(pk=other.run.claim.job_id).status == Status.COMPLETED)
    assert Job.objects.get(pk=waiting.run.claim.job_id).status == Status.RUNNING
    assert sizes == [1]
    bench.in_flight._shared_leases.extended(list(bench.in_flight._shared_leases.held()), sent_at=time.monotonic())
    bench.wait_until_idle()
    assert Job.objects.get(pk=waiting.run.claim.job_id).status == Status.COMPLETED


def test_a_run_out_of_touch_whose_lease_proves_lost_is_evidence(bench: Bench) -> None:
    [performed] = bench.performed()
    out_of_touch(performed)
    bench.report(performed)
    api.release(performed.run.claim.job_id)
    bench.in_flight._shared_leases.lost(list(bench.in_flight._shared_leases.held()))
    bench.wait_until_idle()
    assert Attempt.objects.get().late_outcome == "SUCCEEDED"


def test_a_run_whose_lease_ran_out_reports_nothing_if_nobody_extends_leases_any_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = settles_counted(monkeypatch)
    [performed] = bench.performed()
    out_of_touch(performed)
    bench.in_flight.is_orphaned = True
    bench.report(performed)
    bench.wait_until_idle()
    assert sizes == []
    assert Job.objects.get().status == Status.RUNNING, "a watchdog will see to it"
