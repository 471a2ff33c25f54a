"""A handler that waits occupies nothing, an event that came early is not lost, and a step is done once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from pulse_django import Batch, Context, api, send_event
from pulse_django.exceptions import InvalidJob, LeaseLost, NotInsideTransaction
from pulse_django.models import Attempt, Dependency, Event, Fence, Job, Step
from pulse_django.queue.words.outcomes import OutcomeName
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain, expire_lease, jump_to_next_run, run_job
from pulse_django.testing.drain import claimed
from tests.factories import now
from tests.faults import all_faults
from tests.workflows.tasks import (
    BROKEN,
    CALL,
    SAW,
    approved,
    async_steps,
    bump,
    fan_out,
    in_own_transaction,
    in_transaction,
    plain,
    sleeper,
    stepwise,
)

pytestmark = pytest.mark.usefixtures("pulse_db")


@pytest.fixture(autouse=True)
def _no_fences(pulse_db: None) -> Iterator[None]:
    Fence.objects.all().delete()
    yield
    Fence.objects.all().delete()


def token(name: str) -> int:
    return int(Fence.objects.get(resource=name).token)


class TestWaiting:
    def test_a_handler_waits_for_the_jobs_that_it_enqueued(self) -> None:
        job = fan_out.enqueue(3)
        drain()
        done = Job.objects.get(pk=int(job.id))
        assert (done.status, done.result) == (Status.COMPLETED, ["0", "1", "2"])
        assert (done.attempts, done.refunds) == (2, 1)
        assert Attempt.objects.filter(job_id=done.pk).order_by("number").first().outcome == OutcomeName.WAITED  # type: ignore[union-attr]
        assert sorted(name for name, _ in SAW) == ["0", "1", "2"]

    def test_while_it_waits_it_holds_no_lease_and_costs_no_attempt(self) -> None:
        job = fan_out.enqueue(1)
        assert run_job(job).status == Status.WAITING
        waiting = Job.objects.get(pk=int(job.id))
        assert (waiting.locked_by, waiting.attempts, waiting.refunds) == (None, 1, 1)
        assert waiting.finished_at is None

    def test_what_is_over_is_not_waited_for(self) -> None:
        child = plain.enqueue("x")
        run = claimed(fan_out.enqueue(0))
        drain()
        context = _context(run)
        assert context.wait_for(child) == "X"
        assert context.wait_for([child]) == ["X"]
        assert not Dependency.objects.exists()

    def test_a_batch_can_be_waited_for(self) -> None:
        batch = Batch.open("some")
        batch.add(plain.prepare("x"))
        batch.seal()
        run = claimed(fan_out.enqueue(0))
        drain()
        assert _context(run).wait_for(batch).percent == 100

    def test_a_run_that_lost_its_lease_writes_no_need(self) -> None:
        child = plain.enqueue("x")
        job = fan_out.enqueue(0)
        run = claimed(job)
        run.beat = None
        expire_lease(job)
        Job.objects.reap()
        with pytest.raises(LeaseLost):
            _context(run).wait_for(child)
        assert not Dependency.objects.exists()


class TestEvents:
    def test_an_event_that_came_early_is_there(self) -> None:
        assert send_event("approved:1", {"by": "ada"})
        assert not send_event("approved:1", {"by": "bob"})
        job = approved.enqueue("approved:1")
        drain()
        assert Job.objects.get(pk=int(job.id)).result == {"by": "ada"}
        assert Event.objects.get().payload == {"by": "ada"}

    def test_an_event_that_comes_later_frees_who_waits(self) -> None:
        job = approved.enqueue("approved:2")
        drain()
        assert Job.objects.get(pk=int(job.id)).status == Status.WAITING
        send_event("approved:2", 42)
        drain()
        assert Job.objects.get(pk=int(job.id)).result == 42

    def test_an_event_that_does_not_come_in_time_is_an_error_in_every_later_run(self) -> None:
        job = approved.enqueue("approved:3", 3600)
        drain()
        Dependency.objects.update(until=now(timedelta(seconds=-1)))
        drain(failures="keep")
        dead = Job.objects.get(pk=int(job.id))
        assert (dead.status, dead.last_error) == (Status.DEAD_LETTERED, "EventTimedOut: approved:3 [tasks.py:approved]")
        send_event("approved:3")
        api.retry(job.id)
        drain(failures="keep")
        assert Job.objects.get(pk=int(job.id)).status == Status.DEAD_LETTERED


class TestSteps:
    def test_a_step_is_done_once_whatever_becomes_of_the_runs(self) -> None:
        BROKEN.add("order")
        job = stepwise.enqueue("order")
        drain(failures="keep")
        assert Job.objects.get(pk=int(job.id)).status == Status.DEAD_LETTERED
        BROKEN.clear()
        api.retry(job.id)
        drain()
        assert Job.objects.get(pk=int(job.id)).result == [1, 1]
        assert (token("order first"), token("order second")) == (1, 1)
        assert list(Step.objects.order_by("number").values_list("name", "number", "attempt")) == [
            ("first", 1, 1),
            ("second", 2, 2),
        ]

    def test_a_zombie_writes_no_step_and_its_atomic_step_is_undone(self) -> None:
        job = stepwise.enqueue("order")
        run = claimed(job)
        run.beat = None
        expire_lease(job)
        Job.objects.reap()
        context = _context(run)
        with pytest.raises(LeaseLost):
            context.step("first", bump, "order first", atomic=True)
        assert not Fence.objects.exists()
        assert not Step.objects.exists()

    def test_a_name_twice_in_one_run_is_an_error(self) -> None:
        context = _context(claimed(stepwise.enqueue("order")))
        context.step("one", int)
        with pytest.raises(InvalidJob, match="has had a step 'one'"):
            context.step("one", int)

    def test_a_step_returns_what_the_next_run_will_see(self) -> None:
        context = _context(claimed(stepwise.enqueue("order")))
        assert context.step("pair", lambda: (1, 2)) == [1, 2]

    def test_a_sleep_is_a_step(self) -> None:
        job = sleeper.enqueue()
        drain()
        assert [name for name, _ in SAW] == ["before"]
        jump_to_next_run(job)
        Step.objects.update(at=now(timedelta(hours=-2)))
        drain()
        assert [name for name, _ in SAW] == ["before", "before", "after"]
        assert Job.objects.get(pk=int(job.id)).result == "awake"

    def test_what_cannot_be_part_of_a_transaction_ends_the_job_at_once(self) -> None:
        """A retry would not help, and inside the transaction what the next run needs would be rolled back."""
        calls: dict[str, Callable[[Context], object]] = {
            "step 'reserve'": lambda context: context.step("reserve", int, atomic=True),
            "context.atomic()": lambda context: context.atomic().__enter__(),
            "sleep 'nap'": lambda context: context.sleep(timedelta(hours=1), name="nap"),
            "wait_for()": lambda context: context.wait_for(plain.enqueue("later")),
            "wait_for_event()": lambda context: context.wait_for_event("never"),
        }
        with all_faults() as about:
            for name, call in calls.items():
                for of_task in (False, True):
                    with about((name, of_task)):
                        CALL.clear()
                        CALL.append(call)
                        job = (in_own_transaction if of_task else in_transaction).enqueue()
                        ran = run_job(job, failures="keep")
                        assert isinstance(ran.error, NotInsideTransaction)
                        dead = Job.objects.get(pk=int(job.id))
                        assert (dead.status, dead.attempts) == (Status.DEAD_LETTERED, 1)
                        assert name in dead.last_error
                        assert "atomic()" in dead.last_error
                        Job.objects.all().delete()

    def test_async_handlers_have_steps(self) -> None:
        job = async_steps.enqueue()
        drain()
        assert Job.objects.get(pk=int(job.id)).result == 3
        assert Step.objects.get().result == 3


def _context(run):  # type: ignore[no-untyped-def]
    from pulse_django.run.execute import prepared
    from pulse_django.run.registry import registry

    return prepared(run, registry.get(run.claim.task)).context
