"""Jobs that need each other run in order, each once, and what died holds what needs it."""

from __future__ import annotations

import pytest
from django.db import transaction

from pulse_django import Batch, Workflow, api, chain, chord, group
from pulse_django.exceptions import BatchFinished, InvalidWorkflow, NeededResultMissing
from pulse_django.models import Dependency, Job, StoredBatch, Unresolved
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows.resolving import resolve
from pulse_django.workflows.waits import NeededResults
from tests.crash.workers import status
from tests.queue.steps import sql
from tests.workflows.tasks import BROKEN, SAW, note, plain

pytestmark = pytest.mark.usefixtures("pulse_db")


def saw() -> list[str]:
    return [name for name, _ in SAW]


def test_a_job_runs_after_all_that_it_needs_and_finds_their_results() -> None:
    flow = Workflow("order 42")
    flow.add("ship", note.prepare("ship"), needs=["charge", "pack"])
    flow.add("charge", note.prepare("charge"))
    flow.add("pack", note.prepare("pack"))
    placed = flow.enqueue()
    assert status(placed.job_ids["ship"]) == Status.WAITING
    drain()
    assert SAW[-1] == ("ship", {"charge": "CHARGE", "pack": "PACK"})
    assert sorted(saw()) == ["charge", "pack", "ship"]
    batch = StoredBatch.objects.get()
    assert batch.finished_at is not None
    assert (batch.added, batch.completed, batch.cancelled) == (3, 3, 0)
    assert not Unresolved.objects.exists()


def test_chains_groups_and_chords_are_workflows() -> None:
    chain(note.prepare("a"), group(note.prepare("b"), note.prepare("c")), note.prepare("d")).enqueue()
    drain()
    assert (saw()[0], saw()[-1], sorted(saw())) == ("a", "d", ["a", "b", "c", "d"])
    SAW.clear()
    listed, named = chain([note.prepare("a"), note.prepare("b")]), chain(note.prepare("a"), note.prepare("b"))
    assert listed.nodes == named.nodes
    chord([note.prepare("e"), note.prepare("f")], note.prepare("g")).enqueue()
    drain()
    assert SAW[-1] == ("g", {"note": "E", "note 2": "F"})


def test_a_dead_letter_holds_what_needs_it_until_it_is_retried() -> None:
    BROKEN.add("b")
    placed = chain(note.prepare("a"), note.prepare("b"), note.prepare("c")).enqueue()
    drain(failures="keep")
    ids = list(placed.job_ids.values())
    assert [status(job_id) for job_id in ids] == [Status.COMPLETED, Status.DEAD_LETTERED, Status.WAITING]
    assert StoredBatch.objects.get().finished_at is None
    BROKEN.clear()
    api.retry(ids[1])
    drain()
    assert saw() == ["a", "b", "c"]
    assert StoredBatch.objects.get().finished_at is not None


def test_a_dead_letter_cancels_what_needs_it_if_the_workflow_says_so() -> None:
    BROKEN.add("a")
    flow = Workflow(on_need_failed="cancel")
    flow.add("a", note.prepare("a")).add("b", note.prepare("b"), needs=["a"]).add("c", note.prepare("c"), needs=["b"])
    placed = flow.enqueue()
    drain(failures="keep")
    assert [status(job_id) for job_id in placed.job_ids.values()] == ["DEAD_LETTERED", "CANCELLED", "CANCELLED"]
    job = Job.objects.get(pk=placed.job_ids["b"])
    assert job.cancel_reason == f"job {placed.job_ids['a']}, which it needs, is a dead letter"


def test_a_job_may_go_on_without_what_died() -> None:
    BROKEN.add("a")
    flow = Workflow()
    flow.add("a", note.prepare("a")).add("b", note.prepare("b"), needs=["a"], on_need_failed="continue")
    placed = flow.enqueue()
    drain(failures="keep")
    assert SAW == [("b", {})]
    needed = Dependency.objects.get(job_id=placed.job_ids["b"])
    assert needed.met == "dead"


def test_a_need_that_was_cancelled_cancels_what_needs_it() -> None:
    placed = chain(note.prepare("a"), note.prepare("b"), note.prepare("c")).enqueue()
    a, b, c = placed.job_ids.values()
    api.cancel(a)
    drain()
    assert [status(one) for one in (a, b, c)] == [Status.CANCELLED] * 3
    assert Job.objects.get(pk=b).cancel_reason == f"job {a}, which it needs, was cancelled"
    assert StoredBatch.objects.get().finished_at is not None


def test_cycles_and_unknown_names_are_refused() -> None:
    flow = Workflow().add("a", note.prepare("a"), needs=["b"]).add("b", note.prepare("b"), needs=["a"])
    with pytest.raises(InvalidWorkflow, match=r"cycle: (a needs b needs a|b needs a needs b)"):
        flow.enqueue()
    with pytest.raises(InvalidWorkflow, match="which is no node of"):
        Workflow().add("a", note.prepare("a"), needs=["nobody"]).enqueue()
    assert not Job.objects.exists()
    assert not StoredBatch.objects.exists()


def test_a_need_on_a_job_from_elsewhere_is_met_when_it_is_over() -> None:
    first = note.enqueue("first")
    Workflow().add("next", note.prepare("next"), needs={"before": first}).enqueue()
    drain()
    assert SAW == [("first", {}), ("next", {"before": "FIRST"})]
    placed = Workflow().add("late", note.prepare("late"), needs={"before": first}).enqueue()
    drain()
    assert SAW[-1] == ("late", {"before": "FIRST"})
    assert status(placed.job_ids["late"]) == Status.COMPLETED


def test_many_needs_become_a_batch() -> None:
    flow = Workflow()
    for number in range(60):
        flow.add(f"part {number}", note.prepare(str(number)))
    flow.add("all", note.prepare("all"), needs=[f"part {number}" for number in range(60)])
    flow.enqueue()
    assert Dependency.objects.count() == 1
    drain()
    name, results = SAW[-1]
    assert name == "all"
    assert results == {f"part {number}": str(number) for number in range(60)}


def test_a_workflow_in_a_workflow_is_one_need() -> None:
    inner = Workflow("inner").add("x", note.prepare("x")).add("y", note.prepare("y"), needs=["x"])
    flow = Workflow("outer").add("a", note.prepare("a")).add_workflow("inner", inner, needs=["a"])
    flow.add("z", note.prepare("z"), needs=["inner"])
    placed = flow.enqueue()
    drain()
    assert saw() == ["a", "x", "y", "z"]
    assert placed.workflows["inner"].row.finished_at is not None
    assert placed.row.finished_at is not None


def test_an_empty_workflow_is_over_at_once_and_an_empty_batch_succeeds() -> None:
    placed = Workflow("nothing").enqueue()
    Batch.open("nothing").seal(on_success=note.prepare("success"))
    drain()
    assert placed.row.finished_at is not None
    assert saw() == ["success"]


def test_callbacks_run_once_and_not_before_the_batch_is_sealed() -> None:
    batch = Batch.open("import")
    for number in range(3):
        batch.add(note.prepare(f"row {number}"))
    drain()
    assert len(SAW) == 3
    batch.seal(on_success=note.prepare("success"), on_dead=note.prepare("dead"), on_end=note.prepare("end"))
    drain()
    assert sorted(saw()[3:]) == ["end", "success"]
    assert Job.objects.filter(status=Status.CANCELLED).count() == 1
    with pytest.raises(InvalidWorkflow, match="is already sealed"):
        batch.seal()
    with pytest.raises(BatchFinished):
        batch.add(note.prepare("late"))


def test_what_happens_when_a_member_dies_and_is_retried() -> None:
    BROKEN.add("bad")
    batch = Batch.open("import")
    bad = batch.add(note.prepare("bad"))
    batch.add(note.prepare("good"))
    batch.seal(on_success=note.prepare("success"), on_dead=note.prepare("dead"), on_end=note.prepare("end"))
    drain(failures="keep")
    assert sorted(saw()) == ["dead", "end", "good"]
    progress = batch.progress()
    assert (progress.total, progress.completed, progress.dead, progress.open, progress.percent) == (2, 1, 1, 0, 50)
    BROKEN.clear()
    api.retry(bad.id)
    drain()
    assert sorted(saw()) == ["bad", "dead", "end", "good", "success"]
    assert batch.progress().percent == 100


def test_a_dead_letter_that_was_deleted_by_hand_holds_nothing_any_more() -> None:
    BROKEN.add("a")
    placed = chain(note.prepare("a"), plain.prepare("b")).enqueue()
    drain(failures="keep")
    sql("DELETE FROM pulse_django_job WHERE id = %s", placed.job_ids["note"])
    Unresolved.objects.create(job_id=placed.job_ids["note"], batch_id=placed.id)
    drain()
    assert saw() == ["b"]
    assert placed.row.finished_at is not None


def test_cancel_of_a_batch_cancels_what_waits_and_what_is_added_later() -> None:
    with transaction.atomic():
        batch = Batch.open("import")
        ids = batch.add_many(note, [[str(number)] for number in range(10)])
        inner = Batch.open("inner", parent=batch)
        inside = inner.add(note.prepare("inside"))
    assert batch.cancel(reason="not wanted")
    assert not batch.cancel()
    late = batch.add(note.prepare("late"))
    resolve("default")
    assert {status(job_id) for job_id in [*ids, int(inside.id), int(late.id)]} == {Status.CANCELLED}
    assert Job.objects.get(pk=ids[0]).cancel_reason == "not wanted"
    drain()
    assert SAW == []
    assert batch.row.finished_at is not None
    assert inner.row.finished_at is not None


def test_a_missing_result_says_why() -> None:
    BROKEN.add("a")
    flow = Workflow().add("a", note.prepare("a")).add("b", note.prepare("b"), needs=["a"], on_need_failed="continue")
    placed = flow.enqueue()
    drain(failures="keep")
    results = NeededResults(placed.job_ids["b"], "default")
    assert results.not_done == {"a": "dead"}
    with pytest.raises(NeededResultMissing, match="'a' has no result: the job is DEAD_LETTERED"):
        results["a"]


def test_the_end_of_an_inner_batch_with_a_dead_letter_ends_the_outer_one() -> None:
    BROKEN.add("bad")
    outer = Batch.open("outer")
    inner = Batch.open("inner", parent=outer)
    inner.add(note.prepare("bad"))
    good = int(inner.add(note.prepare("good")).id)
    inner.seal()
    outer.seal(on_end=note.prepare("end"))
    for due in ("now() + interval '1 day'", "now()"):
        sql(f"UPDATE pulse_django_job SET next_run_at = {due} WHERE id = %s", good)
        drain(failures="keep")
        resolve("default")
    drain()
    assert [name for name, _ in SAW] == ["good", "end"]
