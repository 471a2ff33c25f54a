"""Code that builds workflows is tested without a database: DummyBackend records their jobs."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import override_settings

from pulse_django import Batch, Workflow, chain, chord, group
from pulse_django.exceptions import InvalidWorkflow, WrongArguments
from pulse_django.run.registry import task_backends
from tests.run import test_testing
from tests.run.test_other_backends import IMMEDIATE
from tests.workflows.tasks import fan_out, note, plain, sleeper

DUMMY = {"BACKEND": test_testing.DUMMY, "QUEUES": []}
PULSE = {"BACKEND": "pulse_django.backend.PulseBackend"}


def recorded() -> list[Any]:
    dummy: Any = task_backends["default"]
    return list(dummy.results)


def test_dummy_records_each_job_after_those_that_it_needs() -> None:
    parts = [plain.prepare(name) for name in "ab"]
    outer = Workflow("outer").add("last", sleeper, needs=["inner"]).add_workflow("inner", chain(*parts))
    cases: list[tuple[Workflow, list[Any], list[str]]] = [
        (chain(*parts, sleeper), ["a", "b", None], ["plain", "plain 2", "sleeper"]),
        (group(*parts), ["a", "b"], ["plain", "plain 2"]),
        (chord(parts, note.prepare(name="c")), ["a", "b", "c"], ["plain", "plain 2", "note"]),
        (outer, ["a", "b", None], ["last"]),
        (group(), [], []),
    ]
    for workflow, names, nodes in cases:
        with override_settings(TASKS={"default": DUMMY}):
            placed = workflow.enqueue()
            results = recorded()
            assert [next(iter((*one.args, *one.kwargs.values())), None) for one in results] == names
            assert (list(placed.job_ids), list(placed.workflows)) == (nodes, ["inner"] * (workflow is outer))
            assert {*placed.job_ids.values()} <= {one.id for one in results}


def test_what_pulse_would_refuse_is_refused() -> None:
    with override_settings(TASKS={"default": DUMMY}):
        with pytest.raises(InvalidWorkflow, match="no node"):
            Workflow().add("a", plain.prepare("a"), needs=["b"]).enqueue()
        with pytest.raises(WrongArguments):
            chain(sleeper, fan_out.prepare()).enqueue()  # type: ignore[call-arg]
        assert recorded() == []


def test_other_backends_say_what_to_use() -> None:
    said = r"plain runs on {}Backend. .* need PulseBackend: run them with drain\(\), or use Django's DummyBackend"
    ours = "pulse_django.immediate.ImmediateBackend"
    now = {"BACKEND": IMMEDIATE, "QUEUES": []}
    for tasks, backend in (({"default": now}, "Immediate"), ({"default": {"BACKEND": ours}}, "Immediate")):
        with override_settings(TASKS=tasks), pytest.raises(InvalidWorkflow, match=said.format(backend)):
            chain(plain.prepare("a"), sleeper).enqueue()
    with override_settings(TASKS={"default": PULSE, "dummy": DUMMY}):
        call = plain.using(backend="dummy").prepare("a")
        with pytest.raises(InvalidWorkflow, match=said.format("Dummy")):
            chain(sleeper, call).enqueue()
        for add in (Batch(1, "default").add, lambda call: Batch(1, "default").add_many(call.task, [["a"]])):
            with pytest.raises(InvalidWorkflow, match=said.format("Dummy")):
                add(call)
