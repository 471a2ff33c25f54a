"""What is accepted arrives equal and of the same type: through enqueue and claim, settle, and a heartbeat."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies

from pulse_django.exceptions import PayloadError
from pulse_django.models import Job
from pulse_django.queue.words.decisions import Complete
from pulse_django.queue.words.job_options import NewJob
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.outcomes import returned
from pulse_django.queue.words.payloads import encode_progress
from pulse_django.queue.words.verb_results import Report
from pulse_django.run.registry import GenericTask
from pulse_django.run.results import result_of
from testproject.shop import tasks

pytestmark = pytest.mark.usefixtures("pulse_db")

LIMIT = 1_000_000
ME = Identity("me")

numbers = strategies.one_of(
    strategies.integers(),
    strategies.floats(allow_nan=False, allow_infinity=False),
    strategies.sampled_from([1e16, 1e22, 1e23, 1.7976931348623157e308, 5e-324, -0.0, 10**16, 10**4299, -(2**63)]),
)
texts = strategies.text(strategies.characters(exclude_categories=("Cs",), exclude_characters="\x00"))
documents = strategies.recursive(
    strategies.one_of(strategies.none(), strategies.booleans(), numbers, texts),
    lambda inner: strategies.one_of(
        strategies.lists(inner, max_size=4), strategies.dictionaries(texts, inner, max_size=4)
    ),
    max_leaves=12,
)
many = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def exact(value: Any) -> Any:
    """Spell a value with the types of all its parts. The order of keys is not kept."""
    if isinstance(value, dict):
        return ("dict", sorted((key, exact(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", [exact(item) for item in value])
    return (type(value).__name__, repr(value))


def claim_of(job_id: int) -> Any:
    [claim] = Job.objects.claim_these(ME, [job_id])
    return claim


@many
@given(strategies.lists(documents, max_size=3), strategies.dictionaries(texts, documents, max_size=3))
def test_arguments(args: list[Any], kwargs: dict[str, Any]) -> None:
    job = Job.objects.enqueue(NewJob(task="tests.add", args=args, kwargs=kwargs))
    [again] = Job.objects.enqueue_many([NewJob(task="tests.add", args=args, kwargs=kwargs)])
    task: GenericTask[..., Any] = tasks.echo
    shown, stored = result_of(job, task), result_of(Job.objects.get(pk=job.pk), task)
    for seen in (claim_of(job.pk), claim_of(again), shown, stored):
        assert exact(seen.args) == exact(args)
        assert exact(seen.kwargs) == exact(kwargs)


@many
@given(documents)
def test_results_and_checkpoints(value: Any) -> None:
    job = Job.objects.enqueue(NewJob(task="tests.add"))
    claim = claim_of(job.pk)
    Job.objects.heartbeat([claim.lease], {claim.lease: encode_progress({"it": value}, limit=LIMIT)})
    Job.objects.release([claim.lease])
    claim = claim_of(job.pk)
    assert exact(claim.progress) == exact({"it": value})
    assert exact(Job.objects.get(pk=job.pk).progress) == exact({"it": value})
    outcome = returned(value, limit=LIMIT)
    Job.objects.settle([Report(claim.lease, outcome, Complete(getattr(outcome, "result", None)))])
    assert exact(Job.objects.get(pk=job.pk).result) == exact(value)


@many
@given(
    strategies.recursive(
        strategies.one_of(numbers, strategies.text()),
        lambda inner: strategies.dictionaries(strategies.one_of(strategies.text(), numbers), inner),
    )
)
def test_what_does_not_arrive_unchanged_is_refused_by_name(value: Any) -> None:
    try:
        job = Job.objects.enqueue(NewJob(task="tests.add", args=[value]))
    except PayloadError as error:
        says = str(error)
        assert says.startswith("args[0]")
    else:
        assert exact(claim_of(job.pk).args) == exact([value])
