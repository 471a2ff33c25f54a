"""What a worker gets over: mistakes in its surroundings, runs that end at the wrong moment, neighbours."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest
from django.db import OperationalError

from pulse_django.models import Attempt, Job
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.outcomes import Succeeded
from pulse_django.queue.words.states import Status
from pulse_django.run.judging import judged
from pulse_django.run.run import Run
from pulse_django.worker.executors import threads
from pulse_django.worker.executors.threads import Threads
from pulse_django.worker.in_flight import InFlight
from pulse_django.worker.shared_leases import SharedLeases
from tests.crash.workers import LONG_LEASE, QUICK, Workers, is_alive, wait_until
from tests.factories import make_job
from tests.worker import more_handlers
from tests.worker.test_shared_leases import PREFIX, claim

MODULES = {"TASK_MODULES": ["tests.worker.handlers", "tests.worker.more_handlers"]}


def outcomes(job_id: int | str) -> list[str]:
    return list(Attempt.objects.filter(job=int(job_id)).order_by("number").values_list("outcome", flat=True))


class TestAThread:
    """The threads of an executor outlive whatever goes wrong around a handler."""

    @pytest.fixture
    def in_flight(self) -> InFlight:
        return InFlight(SharedLeases(PREFIX), "default", 1)

    def run_two(self, in_flight: InFlight, monkeypatch: pytest.MonkeyPatch, **broken: Any) -> list[Any]:
        done: list[Any] = []
        both = threading.Event()

        def note(run: Run, performed: Any) -> None:
            done.append(performed)
            if len(done) == 2:
                both.set()

        for name, replacement in broken.items():
            monkeypatch.setattr(threads, name, replacement)
        executor = Threads(1, in_flight.begin, note)
        executor.submit(in_flight.take([claim(1), claim(2)], time.monotonic()))
        assert both.wait(10), "the thread died with the first"
        return done

    def test_an_error_that_no_handler_raised_ends_one_run(
        self, in_flight: InFlight, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def breaks(run: Run) -> Any:
            raise OperationalError("in the middle of nowhere")

        done = self.run_two(in_flight, monkeypatch, perform=breaks)
        assert [performed.report.outcome.name for performed in done] == ["FAILED", "FAILED"]

    @pytest.mark.parametrize("broken", ["tidy_connections", "ready_connections"])
    def test_connections_that_cannot_be_seen_to_cost_no_run(
        self, in_flight: InFlight, monkeypatch: pytest.MonkeyPatch, broken: str
    ) -> None:
        def breaks() -> None:
            raise RuntimeError("no")

        succeeds = lambda run: judged(run, None, Succeeded())  # noqa: E731
        done = self.run_two(in_flight, monkeypatch, perform=succeeds, **{broken: breaks})
        assert [performed.report.outcome.name for performed in done] == ["SUCCEEDED", "SUCCEEDED"]


def test_a_run_that_was_settled_promises_nothing_and_is_nobodys_any_more() -> None:
    in_flight = InFlight(SharedLeases(PREFIX), "default", 1)
    [run] = in_flight.take([claim(1, ttl=0.1)], time.monotonic() - 5.0)
    in_flight.ended(run)
    in_flight.settled([run])
    assert run.lease_remaining() < 0
    assert not in_flight.is_active(run)
    assert in_flight.given_up(run) is False
    assert not in_flight.stuck


def test_progress_of_runs_that_are_over_is_not_kept() -> None:
    shared_leases = SharedLeases(PREFIX)
    entry = shared_leases.hold(claim(1), 30.0)
    child = shared_leases
    child.progress = {claim(1).lease: "{}", claim(2).lease: "{}"}
    child.forget_progress()
    assert set(child.progress) == {claim(1).lease}
    entry.drop()
    child.forget_progress()
    assert not child.progress


@pytest.mark.usefixtures("pulse_db")
class TestInProcesses:
    def test_what_runs_in_a_process_of_its_own_is_dead_before_its_job_is_handed_back(self, workers: Workers) -> None:
        worker = workers.ready("--shutdown-grace", "0.5", settings=LONG_LEASE | MODULES)
        job = more_handlers.holds_its_own_interpreter.enqueue(40).id  # for hours
        wait_until(lambda: bool(workers.trace.of(job, "begin")))
        worker.family()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        row = Job.objects.get(pk=job)
        assert (row.status, row.attempts - row.refunds) == (Status.PENDING, 0)
        [begun] = workers.trace.of(job, "begin")
        assert not is_alive(begun["pid"])

    def test_who_tells_of_its_progress_does_not_stall_though_beats_are_far_apart(self, workers: Workers) -> None:
        slow_beat = QUICK | MODULES | {"LEASE_TTL": 30, "HEARTBEAT_INTERVAL": 10}
        job = more_handlers.is_busy_telling.enqueue(4).id
        assert workers.start("--burst", settings=slow_beat).wait() == 0
        assert outcomes(job) == ["SUCCEEDED"]

    def test_an_async_handler_keeps_its_connection_when_its_neighbours_end(self, workers: Workers) -> None:
        for _ in range(30):
            make_job(queue="elsewhere")
        slow = more_handlers.reads_slowly.enqueue(20).id
        quick = [more_handlers.asks_quickly.enqueue().id for _ in range(40)]
        assert workers.start("--burst", "--queues", "default", settings=MODULES).wait() == 0
        assert outcomes(slow) == ["SUCCEEDED"], Job.objects.get(pk=slow).last_error
        assert [outcomes(job) for job in quick] == [["SUCCEEDED"]] * 40

    def test_a_handler_that_goes_on_after_its_completion_is_left_alone(self, workers: Workers) -> None:
        job = more_handlers.completes_itself_and_goes_on.enqueue(2.5).id
        worker = workers.start("--burst", settings=QUICK | MODULES)
        assert worker.wait() == 0
        assert workers.trace.of(job, "end")
        assert Job.objects.get(pk=job).status == Status.COMPLETED
        assert "lease lost" not in worker.log

    def test_an_unknown_task_waits_and_its_worker_goes_on(self, workers: Workers) -> None:
        stranger = Job.objects.enqueue(NewJob(task="from.the.next.release"))
        known = more_handlers.asks_quickly.enqueue().id
        assert workers.start("--burst", settings=MODULES).wait() == 0
        assert (outcomes(stranger.pk), outcomes(known)) == (["RELEASED"], ["SUCCEEDED"])
