"""``pulse_workflows``: it lists, shows, cancels and retries, in lines and as JSON."""

from __future__ import annotations

from functools import partial

import pytest
from django.core.management import CommandError

from pulse_django import Batch, Workflow
from pulse_django.models import Job, StoredBatch
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from pulse_django.workflows import acts as operations
from pulse_django.workflows.reading import graph as graphs
from tests.operations.steps import run, run_json
from tests.workflows.tasks import BROKEN, approved, note

pytestmark = pytest.mark.django_db


ran, ran_json = partial(run, "pulse_workflows"), partial(run_json, "pulse_workflows")


def placed(*, broken: str = "") -> Batch:
    BROKEN.add(broken)
    flow = Workflow("order 42")
    flow.add("charge", note.prepare("charge")).add("ship", note.prepare("ship"), needs=["charge"])
    return flow.enqueue()


def test_it_lists_the_newest() -> None:
    assert ran() == "There are no workflows.\n"
    first = placed(broken="charge")
    drain(failures="keep")
    Workflow("approval").add("ask", approved.prepare("approved:7")).enqueue()
    drain()
    header, newest, oldest = ran().splitlines()
    assert header.split() == ["id", "name", "kind", "state", "over", "time", "held", "by"]
    assert "event approved:7" in newest
    assert "held" in oldest
    assert "dead letter charge #" in oldest
    assert [one["name"] for one in ran_json("list", "--most", 1)["workflows"]] == ["approval"]
    assert ran_json("list", "--before", first.id)["workflows"] == []


def test_what_is_over_or_within_is_a_choice() -> None:
    inner = Workflow("inner").add("x", note.prepare("x"))
    Workflow("outer").add_workflow("part", inner).enqueue()
    assert [one["name"] for one in ran_json("list")["workflows"]] == ["outer"]
    assert [one["name"] for one in ran_json("list", "--inside")["workflows"]] == ["inner", "outer"]
    drain()
    assert ran_json("list", "--open")["workflows"] == []


def test_it_shows_the_jobs_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = placed()
    drain()
    text = ran("show", batch.id)
    assert f"order 42 #{batch.id}: done" in text
    assert "* on the critical path" in text
    said = ran_json("show", batch.id)
    assert said["workflow"]["completed"] == 2
    assert [(node["name"], node["layer"], node["is_critical"]) for node in said["graph"]["nodes"]] == [
        ("charge", 0, True),
        ("ship", 1, True),
    ]
    [edge] = said["graph"]["edges"]
    assert edge["is_met"]
    monkeypatch.setattr(graphs, "MOST_DRAWN", 1)
    assert "layer 2: 1 COMPLETED" in ran("show", batch.id)
    monkeypatch.setattr(graphs, "MOST_READ", 1)
    assert "too many jobs" in ran("show", batch.id)


def test_it_cancels() -> None:
    batch = placed()
    assert ran("cancel", batch.id).startswith(f"Workflow {batch.id} cancelled.")
    drain()
    assert {job.status for job in Job.objects.all()} == {Status.CANCELLED}
    assert "(pulse_workflows)" in StoredBatch.objects.get().cancel_reason
    with pytest.raises(CommandError, match="was cancelled before"):
        ran("cancel", batch.id)


def test_it_pauses_and_resumes() -> None:
    batch = placed()
    assert ran("pause", batch.id) == f"Workflow {batch.id} paused. Running jobs continue.\n"
    assert ran_json("show", batch.id)["workflow"]["state"] == "paused"
    with pytest.raises(CommandError, match="was paused before"):
        ran("pause", batch.id)
    assert ran_json("resume", batch.id)["workflow"]["state"] == "open"
    with pytest.raises(CommandError, match="is not paused"):
        ran("resume", batch.id)


def test_it_retries_dead_letters_also_of_what_is_within(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations, "AT_ONCE", 1)
    monkeypatch.setattr(operations, "MOST_ROUNDS", 2)
    BROKEN.update("xyz")
    inner = Workflow("inner").add("x", note.prepare("x")).add("y", note.prepare("y"))
    batch = Workflow("outer").add_workflow("part", inner).add("z", note.prepare("z")).enqueue()
    drain(failures="keep")
    BROKEN.clear()
    assert ran("retry", batch.id).splitlines() == ["2 retried.", "There are more: run it again."]
    answer = ran_json("retry", batch.id)
    assert (answer["revived"], answer["has_more"]) == (1, False)
    drain()
    assert ran_json("show", batch.id)["workflow"]["state"] == "done"


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(CommandError, match="There is no workflow 7"):
        ran("show", 7)
    with pytest.raises(CommandError, match="show: give the id"):
        ran("show")


def test_hostile_names_are_text() -> None:
    StoredBatch.objects.create(name="\x1b[2J\u202eevil")
    assert "\x1b" not in ran()
    assert "\u202e" not in ran()
