"""A lease that could not be extended in time: who is told to stop, what that costs, and when it is over."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from pulse_django.exceptions import DeadlinePassed, LeaseLost
from pulse_django.models import Job
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.options import ClaimedOptions
from pulse_django.queue.words.outcomes import OutcomeName, TimedOut
from pulse_django.run.execute import perform, perform_async
from pulse_django.run.registry import registry
from pulse_django.run.run import Performed, Run
from pulse_django.worker.child import PATIENCE_WITH_STOPPED, RunSupervisor
from pulse_django.worker.executors.event_loop import EventLoop
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from tests.crash.workers import wait_until
from tests.factories import make_job
from tests.worker import more_handlers
from tests.worker.test_shared_leases import PREFIX, claim

pytestmark = pytest.mark.usefixtures("pulse_db")

NAMES = "tests.worker.more_handlers"


class Executor:
    """Remembers whom it was to stop."""

    def __init__(self, *, can_stop: bool) -> None:
        self.can_stop, self.kills = can_stop, False
        self.stopped: list[Run] = []

    def submit(self, runs: Sequence[Run]) -> None: ...

    def take_back(self) -> list[Run]:
        return []

    def stop(self, run: Run) -> bool:
        self.stopped.append(run)
        return self.can_stop


class Bench:
    def __init__(self, *, can_stop: bool) -> None:
        self.shared_leases = SharedLeases(PREFIX)
        self.in_flight = InFlight(self.shared_leases, "default", 4)
        self.executor = Executor(can_stop=can_stop)
        self.reports: list[Performed] = []
        self.judge = RunSupervisor(self.in_flight, lambda run: self.executor, self.reports.append)
        [self.run] = self.in_flight.take([claim(1)], time.monotonic())
        assert self.in_flight.begin(self.run)

    def look(self, later: float = 0.0) -> None:
        self.judge.look_after(self.in_flight.active, time.monotonic() + later)


def run_out(run: Run) -> None:
    run._extended_at = time.monotonic() - run.claim.ttl_seconds - 1.0


def claimed(name: str) -> Run:
    job = make_job(task=f"{NAMES}.{name}")
    [claim] = Job.objects.claim_these(Identity("me"), [job.pk])
    return Run(claim, beat=lambda run: None)


def outcome_of(performed: Performed) -> Any:
    return performed.report and performed.report.outcome.name


@pytest.mark.parametrize("can_stop", [False, True], ids=["thread", "loop"])
def test_a_handler_is_told_to_stop_and_keeps_its_lease_and_its_slot(can_stop: bool) -> None:
    bench = Bench(can_stop=can_stop)
    run_out(bench.run)
    for later in (0.0, 0.5, PATIENCE_WITH_STOPPED + 1):
        bench.look(later)
    assert bench.executor.stopped == [bench.run], "once"
    assert bench.run in bench.in_flight
    assert not bench.in_flight.stuck
    assert bench.reports == []


@pytest.mark.parametrize("can_stop", [False, True], ids=["thread", "loop"])
def test_what_did_not_stop_goes_on_with_its_deadline_when_a_beat_comes_through(can_stop: bool) -> None:
    bench = Bench(can_stop=can_stop)
    run_out(bench.run)
    bench.look()
    bench.shared_leases.extended(list(bench.shared_leases.held()), sent_at=time.monotonic())
    bench.look(PATIENCE_WITH_STOPPED + 0.1)
    assert not bench.run.is_out_of_touch
    assert bench.run.was_out_of_touch, "whatever it raises now may come from that"
    bench.run.claim = bench.run.claim._replace(options=ClaimedOptions(timeout=timedelta(seconds=1)))
    bench.look(PATIENCE_WITH_STOPPED + 2)
    assert isinstance(bench.run.verdict, TimedOut)


def test_what_proves_lost_is_given_up_as_ever() -> None:
    bench = Bench(can_stop=False)
    run_out(bench.run)
    bench.look()
    bench.shared_leases.lost(list(bench.shared_leases.held()))
    bench.look(PATIENCE_WITH_STOPPED + 1)
    assert bench.run not in bench.in_flight
    assert bench.in_flight.stuck
    assert bench.reports == [], "nothing of it counts"


def test_without_a_keeper_nobody_waits_for_a_beat() -> None:
    bench = Bench(can_stop=False)
    bench.in_flight.is_orphaned = True
    run_out(bench.run)
    bench.look()
    bench.look(PATIENCE_WITH_STOPPED + 1)
    assert bench.run not in bench.in_flight


def test_a_handler_that_stops_because_of_it_is_put_back() -> None:
    run = claimed("checks")
    run_out(run)
    performed = perform(run)
    assert outcome_of(performed) == OutcomeName.RELEASED
    assert performed.report is not None
    Job.objects.settle([performed.report])
    job = Job.objects.get()
    assert (job.status, job.refunds) == ("PENDING", 1)


def test_a_handler_that_makes_it_up_has_failed() -> None:
    performed = perform(claimed("loses_its_lease_by_itself"))
    assert outcome_of(performed) == OutcomeName.FAILED
    assert performed.report is not None
    Job.objects.settle([performed.report])
    job = Job.objects.get()
    assert (job.status, job.refunds, job.last_error) == (
        "RETRYING",
        0,
        "LeaseLost: says who? [more_handlers.py:loses_its_lease_by_itself]",
    )


def test_a_cancellation_that_comes_after_the_lease_was_regained_is_no_failure() -> None:
    run = claimed("is_cancelled_while_it_cleans_up")
    task = registry.get(run.claim.task)
    assert task is not None
    assert outcome_of(asyncio.run(perform_async(run, task))) == OutcomeName.FAILED, "nobody had cancelled it"
    run.was_out_of_touch = True
    assert outcome_of(asyncio.run(perform_async(run, task))) == OutcomeName.RELEASED


def test_a_run_past_its_deadline_hears_of_that_first() -> None:
    run = claimed("checks")
    run.verdict = TimedOut()
    run_out(run)
    with pytest.raises(DeadlinePassed):
        run.check()
    run.verdict = None
    with pytest.raises(LeaseLost):
        run.check()


def test_a_run_that_was_reported_already_is_not_put_back_as_well() -> None:
    run = claimed("checks")
    run_out(run)
    assert run.is_first_report()
    assert perform(run).report is None


def test_an_async_handler_is_put_back_when_the_thread_it_left_at_work_has_ended() -> None:
    run = claimed("leaves_a_thread_at_work")
    more_handlers.released.clear()
    more_handlers.threads_at_work.clear()
    done: list[Performed | None] = []
    over = threading.Event()

    def note(run: Run, performed: Performed | None) -> None:
        done.append(performed)
        over.set()

    loop = EventLoop(1, lambda run: True, note)
    loop.submit([run])
    wait_until(lambda: more_handlers.threads_at_work == ["begun"])
    run.asked_to_stop_at = time.monotonic()
    run.was_out_of_touch = True
    loop.stop(run)
    assert not over.wait(0.5), "its thread is still at work: the job would run twice at a time"
    more_handlers.released.set()
    assert over.wait(10)
    assert more_handlers.threads_at_work == ["begun", "ended"]
    [performed] = done
    assert performed is not None
    assert outcome_of(performed) == OutcomeName.RELEASED
