"""What is very long or very deep: a page stays short, and what is nested too deeply is refused with a sentence."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from pulse_django import Batch, Workflow, chain, group
from pulse_django.exceptions import InvalidJob, InvalidWorkflow
from pulse_django.models import Job, StoredBatch
from pulse_django.run.execute import prepared
from pulse_django.run.registry import registry
from pulse_django.testing.drain import claimed
from pulse_django.workflows.rules import MOST_NESTED
from tests.console.staff import staff
from tests.faults import all_faults
from tests.operations.steps import run
from tests.workflows.tasks import fan_out, plain

pytestmark = pytest.mark.django_db

LONG = 10_000  # the most jobs that a page reads
MOST_BYTES, MOST_SECONDS = 200_000, 2.0  # it was 5 MB; now it is a tenth of a MB, in 0.35 s


def line(jobs: int) -> Batch:
    return chain(*(plain.prepare("x") for _ in range(jobs))).enqueue()


def test_a_chain_of_ten_thousand_makes_a_short_page() -> None:
    batch, client = line(LONG), staff("pulse_view_workflows", "pulse_view_jobs")
    begun = time.process_time()
    page = client.get(f"/admin/pulse_django/storedbatch/{batch.id}/change/")
    took = time.process_time() - begun
    assert page.status_code == 200
    assert len(page.content) < MOST_BYTES
    assert took < MOST_SECONDS
    assert "9800 more layers" in page.content.decode()
    said = run("pulse_workflows", "show", batch.id).splitlines()
    assert said[-1] == "  and 9800 more layers"
    assert len(said) < 250


def nested(levels: int, wrap: Callable[[Any], Any], innermost: Any) -> Any:
    for _ in range(levels):
        innermost = wrap(innermost)
    return innermost


def within(inner: Workflow) -> Workflow:
    return Workflow("outer").add_workflow("inner", inner)


def listed(inner: Any) -> list[Any]:
    return [inner]


def test_what_is_nested_too_deeply_is_refused() -> None:
    run_of = claimed(fan_out.enqueue(0))
    task = registry.get(run_of.claim.task)
    assert task is not None
    context = prepared(run_of, task).context
    leaf = Workflow("leaf").add("x", plain.prepare("x"))
    attempts: dict[str, tuple[type[Exception], Callable[[int], Any]]] = {
        "workflows": (InvalidWorkflow, lambda levels: nested(levels, within, leaf).enqueue()),
        "parts of a group": (
            InvalidWorkflow,
            lambda levels: group(nested(levels, listed, plain.prepare("x"))),
        ),
        "needs of a run": (InvalidJob, lambda levels: context.wait_for(nested(levels, listed, []))),
    }
    with all_faults() as about:
        for name, (error, attempt) in attempts.items():
            for levels in (MOST_NESTED + 1, 3_000):
                with about((name, levels)), pytest.raises(error, match=f"nested more than {MOST_NESTED} deep"):
                    attempt(levels)
            with about(name):
                attempt(MOST_NESTED - 1)
    assert StoredBatch.objects.count() == MOST_NESTED
    assert Job.objects.filter(task=plain.module_path).count() == 1
