"""Whatever ends a job, ``job_finished`` is sent once and says how, by whom and from what."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from pulse_django import api
from pulse_django.health.unknown_tasks import give_up
from pulse_django.models import Job, Worker
from pulse_django.queue import reap as reap_module
from pulse_django.queue.words.outcomes import UNKNOWN_TASK, OutcomeName
from pulse_django.queue.words.states import EndedBy, Ending, Status
from pulse_django.signals import job_dead_lettered, job_finished
from pulse_django.testing import run_job
from pulse_django.worker.guarded_connection import GuardedConnection
from pulse_django.worker.recovery import LostChild, Recovery
from pulse_django.worker.shared_leases import HeldLease
from pulse_django.worker.watchdog import Watchdog
from tests.factories import AttemptFactory, WorkerFactory, lease_of, make_job, now
from tests.queue.steps import expire

pytestmark = pytest.mark.usefixtures("pulse_db")

Heard = list[Ending]


@pytest.fixture
def heard() -> Iterator[Heard]:
    endings: Heard = []

    def receive(sender: Any, ending: Ending, using: str, **_: Any) -> None:
        assert (sender, using) == (Job, "default")
        endings.append(ending)

    job_finished.connect(receive)
    yield endings
    job_finished.disconnect(receive)


@pytest.fixture
def dead() -> Iterator[list[tuple[int, str]]]:
    letters: list[tuple[int, str]] = []

    def receive(job_id: int, reason: str, **_: Any) -> None:
        letters.append((job_id, reason))

    job_dead_lettered.connect(receive)
    yield letters
    job_dead_lettered.disconnect(receive)


def ended(job: Job, status: Status, by: EndedBy, outcome: OutcomeName | None, **others: Any) -> Ending:
    facts: dict[str, Any] = {"previous": Status.RUNNING, "attempt": 1, "reason": ""} | others
    return Ending(job_id=job.pk, task=job.task, queue=job.queue, status=status, by=by, outcome=outcome, **facts)


def sweep() -> None:
    database = GuardedConnection("default", "test")
    watchdog = Watchdog(database)
    watchdog._look_at_server = lambda clock: None  # type: ignore[method-assign]  # a server that was only just started
    watchdog.sweep()


class TestAWorker:
    @pytest.mark.parametrize("task", ["add", "make_invoice"])
    def test_completes_it_also_in_the_handlers_own_transaction(self, heard: Heard, task: str) -> None:
        job = make_job(task=f"testproject.shop.tasks.{task}", args=[1, 2] if task == "add" else [1])
        run_job(job)
        assert heard == [ended(job, Status.COMPLETED, EndedBy.WORKER, OutcomeName.SUCCEEDED)]

    def test_gives_it_up(self, heard: Heard, dead: list[tuple[int, str]]) -> None:
        job = make_job(task="testproject.shop.tasks.add", args=["a", 2], max_attempts=1)
        run_job(job, failures="keep")
        [ending] = heard
        assert (ending.status, ending.by, ending.outcome) == (
            Status.DEAD_LETTERED,
            EndedBy.WORKER,
            OutcomeName.FAILED,
        )
        assert "TypeError" in ending.reason
        assert dead == [(job.pk, ending.reason)]


class TestACancellation:
    @pytest.mark.parametrize("status", [Status.PENDING, Status.RETRYING])
    def test_of_what_waits_ends_it(self, heard: Heard, status: Status) -> None:
        job = make_job(status=status)
        api.cancel(job.pk, reason="not wanted")
        assert heard == [
            ended(
                job,
                Status.CANCELLED,
                EndedBy.CALLER,
                None,
                previous=status,
                attempt=job.attempts,
                reason="not wanted",
            )
        ]

    def test_is_told_after_the_commit_and_not_if_it_is_rolled_back_or_asks_what_runs(self, heard: Heard) -> None:
        with transaction.atomic():
            api.cancel(make_job().pk)
            transaction.set_rollback(True)
        api.cancel(make_job(status=Status.RUNNING).pk)
        with transaction.atomic():
            api.cancel(make_job().pk)
            assert heard == []
        assert len(heard) == 1


class TestAWatchdog:
    def test_dead_letters_it(self, heard: Heard, dead: list[tuple[int, str]]) -> None:
        job = make_job(status=Status.RUNNING, expired=True, max_attempts=1)
        make_job(status=Status.RUNNING, expired=True, max_attempts=5)  # it is sent back, which is no end
        sweep()
        reason = "worker lease expired"
        assert heard == [ended(job, Status.DEAD_LETTERED, EndedBy.WATCHDOG, OutcomeName.WORKER_LOST, reason=reason)]
        assert dead == [(job.pk, reason)]

    def test_cancels_what_was_asked_to_stop(self, heard: Heard) -> None:
        job = make_job(status=Status.RUNNING, max_attempts=5)
        api.cancel(job.pk)
        expire(job)
        sweep()
        reason = "worker lease expired"
        assert heard == [ended(job, Status.CANCELLED, EndedBy.WATCHDOG, OutcomeName.WORKER_LOST, reason=reason)]

    def test_ends_what_the_table_does_not_take_back(self, heard: Heard, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: Any) -> Any:
            raise reap_module.UNSTORABLE[0]("no")

        monkeypatch.setattr(reap_module, "_reap", refused)
        make_job(status=Status.RUNNING, expired=True)
        sweep()
        [ending] = heard
        assert (ending.status, ending.by) == (Status.DEAD_LETTERED, EndedBy.WATCHDOG)
        assert ending.reason.startswith("storing it for another run failed")

    def test_gives_up_what_no_worker_knows(self, heard: Heard, dead: list[tuple[int, str]]) -> None:
        job = make_job(task="gone.away", attempts=1, refunds=1)
        long_ago = now() - timedelta(days=2)
        AttemptFactory(
            job=job, outcome=OutcomeName.RELEASED, message=f"{UNKNOWN_TASK}: x", started_at=long_ago, number=1
        )
        WorkerFactory(tasks=["another"])
        assert Worker.objects.exists()
        assert give_up("default") == [job.pk]
        [ending] = heard
        assert (ending.status, ending.by, ending.outcome) == (
            Status.DEAD_LETTERED,
            EndedBy.WATCHDOG,
            OutcomeName.RELEASED,
        )
        assert [job_id for job_id, _ in dead] == [job.pk]


def test_a_keeper_ends_what_a_dead_process_held(heard: Heard, dead: list[tuple[int, str]]) -> None:
    job = make_job(status=Status.RUNNING, max_attempts=1)
    lease = lease_of(job)
    prefix = lease.holder.rpartition(":")[0] + ":"
    recovery = Recovery(GuardedConnection("default", "test"))
    held = HeldLease(index=0, lease=lease, begun=True, ttl=30.0, serial=1)
    recovery.recover(
        LostChild(holder_prefix=prefix, held=[held], progress={}, reason="died", asked_for=False, at=float("inf"))
    )
    recovery.run_once()
    reason = "worker process died"
    assert heard == [ended(job, Status.DEAD_LETTERED, EndedBy.KEEPER, OutcomeName.WORKER_LOST, reason=reason)]
    assert dead == [(job.pk, reason)]


def test_an_operator_takes_it_from_its_worker_in_its_last_attempt(heard: Heard) -> None:
    job = make_job(status=Status.RUNNING, max_attempts=1)
    api.release(job.pk, reason="enough")
    assert heard == [ended(job, Status.DEAD_LETTERED, EndedBy.CALLER, OutcomeName.WORKER_LOST, reason="enough")]
