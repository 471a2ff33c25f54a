"""An id that was never given is refused; what was deleted is over and has no result; what holds others is kept."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import transaction

from pulse_django import Batch, Workflow, api
from pulse_django.exceptions import InvalidJob, InvalidWorkflow, NeededResultMissing
from pulse_django.models import Dependency, Job, StoredBatch
from pulse_django.queue.words.states import Status
from pulse_django.run.execute import prepared
from pulse_django.run.registry import registry
from pulse_django.testing import drain
from pulse_django.testing.drain import claimed
from tests.faults import all_faults
from tests.operations.steps import run
from tests.queue.steps import sql
from tests.workflows.tasks import BROKEN, SAW, fan_out, note, plain

pytestmark = pytest.mark.usefixtures("pulse_db")

NEVER = 987_654_321


def waiting_context() -> Any:
    run = claimed(fan_out.enqueue(0))
    task = registry.get(run.claim.task)
    assert task is not None
    return prepared(run, task).context


class TestAnIdThatWasNeverGiven:
    def test_cannot_be_waited_for(self) -> None:
        job = plain.enqueue("x")
        drain()
        context = waiting_context()
        cases: list[tuple[Any, str]] = [
            (NEVER, f"job {NEVER}"),
            (str(NEVER), f"job {NEVER}"),
            ([job, NEVER], f"job {NEVER}"),
            (10**18, f"job {10**18}"),
            (Batch(NEVER, "default"), f"batch {NEVER}"),
        ]
        with all_faults() as about:
            for needs, named in cases:
                for on_need_failed in ("wait", "continue"):
                    with about((needs, on_need_failed)), pytest.raises(InvalidJob, match=f"{named} does not exist"):
                        context.wait_for(needs, on_need_failed=on_need_failed)
        assert not Dependency.objects.exists()

    def test_cannot_be_needed_by_a_workflow(self) -> None:
        inner = Workflow("inner")
        inner.add("b", plain.prepare("b"), needs=[Batch(NEVER, "default")])
        flows = [Workflow("flow").add("a", plain.prepare("a"), needs=[NEVER]), Workflow("outer")]
        flows[1].add_workflow("inner", inner)
        with all_faults() as about:
            for flow in flows:
                with about(flow.name), pytest.raises(InvalidWorkflow, match=f"{NEVER} does not exist"):
                    flow.enqueue()
        assert not StoredBatch.objects.exists()
        assert not Job.objects.exists()

    def test_leaves_the_transaction_of_the_caller_usable(self) -> None:
        with transaction.atomic():
            with pytest.raises(InvalidWorkflow):
                Workflow("flow").add("a", plain.prepare("a"), needs=[NEVER]).enqueue()
            assert sql("SELECT 1") == [(1,)]

    def test_is_no_longer_refused_once_it_was_given(self) -> None:
        """An id that somebody else's open transaction was given is not there to see, and was given."""
        sql("SELECT nextval('pulse_django_job_id_seq')")
        [(given,)] = sql("SELECT nextval('pulse_django_job_id_seq')")
        Workflow("flow").add("a", plain.prepare("a"), needs=[given]).enqueue()
        drain()
        assert SAW == [("a", None)]


class TestWhatWasDeleted:
    def test_is_over_and_has_no_result(self) -> None:
        job = plain.enqueue("x")
        drain()
        assert Job.objects.prune_these([int(job.id)])
        context = waiting_context()
        with pytest.raises(NeededResultMissing, match="has no result: the job is deleted"):
            context.wait_for(job)
        assert context.wait_for(job, on_need_failed="continue") is None


class TestADeadLetterThatIsNeeded:
    @pytest.fixture
    def held(self) -> Any:
        BROKEN.update({"a", "part"})
        part = Workflow("part").add("one", note.prepare("part"))
        flow = Workflow("flow")
        flow.add("a", note.prepare("a")).add("b", plain.prepare("b"), needs=["a"])
        flow.add_workflow("part", part).add("c", plain.prepare("c"), needs=["part"])
        placed = flow.enqueue()
        batch = Batch.open("batch")
        batch.add(note.prepare("a"))
        batch.seal(on_success=plain.prepare("d"))
        drain(failures="keep")
        assert Job.objects.dead_letters().count() == 3
        return placed

    def test_is_not_deleted_while_something_waits_for_it(self, held: Any) -> None:
        dead = list(Job.objects.dead_letters().values_list("pk", flat=True))
        assert Job.objects.prune_these(dead) == []
        drain()
        assert SAW == []
        held.cancel()
        drain()
        assert len(Job.objects.prune_these(dead)) == 2

    def test_is_deleted_when_who_needs_it_is_over(self, held: Any) -> None:
        api.cancel(*Job.objects.filter(status=Status.WAITING).values_list("pk", flat=True))
        assert len(Job.objects.prune_these(list(Job.objects.dead_letters().values_list("pk", flat=True)))) == 3

    def test_the_command_says_so(self, held: Any) -> None:
        said = run("pulse_prune", "--status", "DEAD_LETTERED", "--older-than", "0s", "--all", "--yes")
        assert "0 deleted" in said
        assert "3 left: needed by other jobs." in said
