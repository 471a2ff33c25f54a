"""OpenTelemetry: one trace from a request to the enqueue and every run of its job.

``PULSE["OPENTELEMETRY"] = True`` enables traces in every process of the project, web and worker. The project configures
the provider and the exporter, as for any other instrumentation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from pulse_django import __version__
from pulse_django.exceptions import Discard, JobCancelled, Snooze
from pulse_django.queue.words import traces
from pulse_django.queue.words.leases import Claim

try:
    from opentelemetry import trace
    from opentelemetry.context import Context as Surroundings
    from opentelemetry.context import attach, detach
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise ImproperlyConfigured("OpenTelemetry is not installed: python -m pip install opentelemetry-api") from error

NAME = "pulse_django"
PARENT = "traceparent"
_W3C = TraceContextTextMapPropagator()  # independent of the propagators of the project


class JobTracer:
    """The tracer for ``traces``."""

    @contextmanager
    def enqueueing(self, task: str, queue: str) -> Iterator[None]:
        attributes = {"messaging.system": "pulse", "messaging.destination.name": queue, "pulse.task": task}
        with _tracer().start_as_current_span(f"enqueue {task}", kind=SpanKind.PRODUCER, attributes=attributes):
            yield

    def current(self) -> str | None:
        carrier: dict[str, str] = {}
        _W3C.inject(carrier)
        return carrier.get(PARENT)

    def running(self, claim: Claim) -> _Running:
        return _Running(claim)


def follow_jobs() -> None:
    """Store the current trace in every new job, and make every run a span of it."""
    traces.follow(JobTracer())


class _Running:
    """The span of one run. It is no generator, because that would be slow for runs that are not recorded."""

    __slots__ = ("_claim", "_span", "_token")

    def __init__(self, claim: Claim) -> None:
        self._claim = claim

    def __enter__(self) -> None:
        claim = self._claim
        parent = _W3C.extract({PARENT: claim.trace}, Surroundings()) if claim.trace else None
        self._span = span = _tracer().start_span(f"run {claim.task}", context=parent, kind=SpanKind.CONSUMER)
        if span.is_recording():
            span.set_attributes(_facts_of(claim))
        self._token = attach(trace.set_span_in_context(span))

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        detach(self._token)
        span = self._span
        if span.is_recording():
            span.set_attribute("pulse.outcome", "SUCCEEDED" if error is None else type(error).__name__)
            if error is not None and not isinstance(error, Snooze | Discard | JobCancelled):  # these are no errors
                if not self._claim.is_encrypted:  # its message may repeat arguments
                    span.record_exception(error)
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
        span.end()


def _facts_of(claim: Claim) -> dict[str, Any]:
    return {
        "messaging.system": "pulse",
        "messaging.destination.name": claim.queue,
        "messaging.message.id": str(claim.job_id),
        "pulse.task": claim.task,
        "pulse.attempt": claim.attempt,
        "pulse.token": claim.token,
        "pulse.worker": claim.lease.holder,
    }


@lru_cache(maxsize=1)
def _tracer() -> Any:
    """Return the tracer. It is cached, because creating one is slow, and it uses a provider that is set later."""
    return trace.get_tracer(NAME, __version__)
