"""What users have for tests of workflows, and how a job runs again from a step."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pulse_django import Workflow
from pulse_django.exceptions import InvalidWorkflow
from pulse_django.models import Fence, Job, Step
from pulse_django.queue.words.states import Status
from pulse_django.testing import assert_workflow_idempotent, drain, run_workflow
from pulse_django.workflows.rewind import fork, preview, retry_from
from tests.workflows.tasks import BROKEN, count_up, note, stepwise

pytestmark = pytest.mark.usefixtures("pulse_db")


@pytest.fixture(autouse=True)
def _no_fences(pulse_db: None) -> Iterator[None]:
    Fence.objects.all().delete()
    yield
    Fence.objects.all().delete()


def test_a_workflow_runs_to_its_end_and_returns_its_results() -> None:
    flow = Workflow().add("a", note.prepare("a")).add("b", note.prepare("b"), needs=["a"])
    assert run_workflow(flow) == {"a": "A", "b": "B"}


def test_a_workflow_that_does_not_end_says_what_holds_it() -> None:
    BROKEN.add("a")
    flow = Workflow("order").add("a", note.prepare("a")).add("b", note.prepare("b"), needs=["a"])
    with pytest.raises(AssertionError, match=r"'order' did not come to its end. a is DEAD_LETTERED: ValueError: a"):
        run_workflow(flow)


def test_a_workflow_of_atomic_steps_survives_a_kill_everywhere(settings: object) -> None:
    flow = Workflow().add("order", stepwise.prepare("order"))
    assert_workflow_idempotent(flow, ignore=["pulse_django.Fence.token"])
    assert not Job.objects.exists()


def test_a_handler_that_counts_without_a_step_is_found() -> None:
    with pytest.raises(AssertionError, match=r"is not idempotent|with crashes"):
        assert_workflow_idempotent(Workflow().add("count", count_up.prepare("x")))


def test_a_dead_letter_does_a_step_and_all_that_follow_it_again() -> None:
    BROKEN.add("order")
    job = stepwise.enqueue("order")
    drain(failures="keep")
    BROKEN.clear()
    assert preview(job.id, "first").repeated == ["first"]
    with pytest.raises(InvalidWorkflow, match="has done no step 'third'; it has done first"):
        retry_from(job.id, "third")
    assert retry_from(job.id, "first").repeated == ["first"]
    drain()
    assert Job.objects.get(pk=int(job.id)).result == [2, 1]


def test_a_copy_keeps_the_steps_before_and_does_the_others_again() -> None:
    job = stepwise.enqueue("order")
    drain()
    with pytest.raises(InvalidWorkflow, match="is COMPLETED"):
        retry_from(job.id, "second")
    forked = fork(job.id, "second")
    assert (forked.kept, forked.repeated) == (["first"], ["second"])
    drain()
    copy = Job.objects.get(pk=int(forked.job_id))
    assert (copy.status, copy.result) == (Status.COMPLETED, [1, 2])
    assert Step.objects.filter(job_id=copy.pk).count() == 2
