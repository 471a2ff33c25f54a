"""OpenTelemetry: one trace from the request to the last run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta

import pytest
from django.test.utils import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from pulse_django import Context, task
from pulse_django.metrics.exporters import opentelemetry
from pulse_django.models import Job
from pulse_django.queue.words import traces
from pulse_django.queue.words.leases import Identity
from pulse_django.queue.words.masks import ENCRYPTED
from pulse_django.queue.words.states import Status
from pulse_django.testing import drain
from tests.factories import make_job
from tests.queue.steps import sql

pytestmark = pytest.mark.usefixtures("pulse_db")

EXPORTER = InMemorySpanExporter()


@pytest.fixture(scope="module", autouse=True)
def provider() -> None:
    """OpenTelemetry takes one for a process, once."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(provider)


@pytest.fixture(autouse=True)
def followed() -> Iterator[None]:
    EXPORTER.clear()
    with override_settings(PULSE={"OPENTELEMETRY": True}):
        opentelemetry.follow_jobs()
        yield
    traces.follow(None)


@task(name="otel.second-time-lucky", takes_context=True)
def second_time_lucky(context: Context) -> str:
    with trace.get_tracer("theirs").start_as_current_span("inside"):
        if context.attempt == 1:
            raise ValueError("not yet")
    return "done"


@task(name="otel.snoozes", takes_context=True)
def snoozes(context: Context) -> None:
    context.snooze(timedelta(hours=1))


@task(name="otel.parent")
def enqueues() -> None:
    snoozes.enqueue()


def spans() -> dict[str, list[ReadableSpan]]:
    found: dict[str, list[ReadableSpan]] = {}
    for span in sorted(EXPORTER.get_finished_spans(), key=lambda span: span.start_time or 0):
        found.setdefault(span.name, []).append(span)
    return found


def test_a_request_its_enqueue_and_two_attempts_are_one_trace() -> None:
    with trace.get_tracer("web").start_as_current_span("POST /orders"):
        second_time_lucky.enqueue()
    drain(failures="keep")
    Job.objects.reschedule(list(Job.objects.values_list("pk", flat=True)))
    drain()
    job = Job.objects.get()
    assert job.status == Status.COMPLETED
    found = spans()
    [request], [enqueue] = found["POST /orders"], found["enqueue otel.second-time-lucky"]
    first, second = found["run otel.second-time-lucky"]
    assert {span.context.trace_id for one in found.values() for span in one} == {request.context.trace_id}
    assert enqueue.parent is not None
    assert enqueue.parent.span_id == request.context.span_id
    for attempt, (run, inside) in enumerate(zip((first, second), found["inside"], strict=True), 1):
        assert run.parent is not None
        assert run.parent.span_id == enqueue.context.span_id
        assert inside.parent is not None
        assert inside.parent.span_id == run.context.span_id
        assert run.attributes is not None
        assert run.attributes["pulse.attempt"] == attempt
        assert run.attributes["messaging.message.id"] == str(job.pk)
    tokens = [span.attributes["pulse.token"] for span in (first, second) if span.attributes]
    assert tokens[0] < tokens[1]  # type: ignore[operator]
    assert first.status.status_code == trace.StatusCode.ERROR
    assert [event.name for event in first.events] == ["exception"]
    assert second.status.status_code == trace.StatusCode.UNSET
    assert [span.attributes["pulse.outcome"] for span in (first, second) if span.attributes] == [
        "ValueError",
        "SUCCEEDED",
    ]


def test_what_ends_as_it_was_meant_is_no_error() -> None:
    snoozes.enqueue()
    drain()
    [run] = spans()["run otel.snoozes"]
    assert run.status.status_code == trace.StatusCode.UNSET
    assert run.attributes is not None
    assert run.attributes["pulse.outcome"] == "Snooze"


def test_what_a_handler_enqueues_belongs_to_its_run() -> None:
    enqueues.enqueue()
    drain()
    found = spans()
    [run], [enqueue] = found["run otel.parent"], found["enqueue otel.snoozes"]
    assert enqueue.parent is not None
    assert enqueue.parent.span_id == run.context.span_id


def test_a_job_that_was_enqueued_without_a_trace_begins_one() -> None:
    traces.follow(None)
    snoozes.enqueue()
    opentelemetry.follow_jobs()
    drain()
    [run] = spans()["run otel.snoozes"]
    assert Job.objects.get().trace is None
    assert run.parent is None


@pytest.mark.parametrize("nonsense", ["garbage", "00-0-0-00", "\U0001f4a9"])
def test_a_trace_that_nobody_can_read_is_left_alone(nonsense: str) -> None:
    snoozes.enqueue()
    sql("UPDATE pulse_django_job SET trace = %s", nonsense)
    drain()
    assert spans()["run otel.snoozes"][0].parent is None


@pytest.mark.parametrize("trace_id", ["x" * 100, "é" * 10, "a\nb", ""])
def test_a_trace_that_does_not_fit_keeps_no_job_from_being_enqueued(trace_id: str) -> None:
    class Odd(opentelemetry.JobTracer):
        def current(self) -> str:
            return trace_id

    traces.follow(Odd())
    snoozes.enqueue()
    assert Job.objects.get().trace is None


def test_with_traces_off_nothing_is_written_and_no_span_is_made() -> None:
    traces.follow(None)
    with override_settings(PULSE={}), trace.get_tracer("web").start_as_current_span("request"):
        snoozes.enqueue()
        drain()
    assert set(spans()) == {"request"}
    assert Job.objects.get().trace is None


def test_an_error_of_an_encrypted_job_is_not_recorded() -> None:
    """Its message may repeat arguments."""
    for sensitive, events in ((None, ["exception"]), (ENCRYPTED.text, [])):
        EXPORTER.clear()
        make_job(task="otel.secret", sensitive=sensitive)
        [claim] = Job.objects.claim(Identity("me"))
        with suppress(ValueError), traces.running(claim):
            raise ValueError("4711")
        [span] = spans()["run otel.secret"]
        assert span.status.status_code == trace.StatusCode.ERROR
        assert [event.name for event in span.events] == events
