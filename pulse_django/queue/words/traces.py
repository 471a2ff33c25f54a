"""The trace that a job belongs to, for tracers that follow requests. None does until one is installed.

What travels on the job is a W3C ``traceparent``; this module knows nothing more of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from pulse_django.safe_logging import SafeLogger

logger = SafeLogger(__name__)

MAX_TRACE = 64  # a traceparent has 55 characters


class Tracer(Protocol):
    def enqueueing(self, task: str, queue: str) -> AbstractContextManager[Any]:
        """Stand around one enqueue."""

    def current(self) -> str | None:
        """Return the trace that is going on, for the job to carry."""

    def running(self, claim: Any) -> AbstractContextManager[Any]:
        """Stand around one run, outside of all middleware."""


_tracer: Tracer | None = None
_NOTHING: AbstractContextManager[Any] = nullcontext()


def follow(tracer: Tracer | None) -> None:
    """Have jobs carry what this tracer says; None: nothing."""
    global _tracer
    _tracer = tracer


def are_followed() -> bool:
    return _tracer is not None


def enqueueing(task: str, queue: str) -> AbstractContextManager[Any]:
    return _NOTHING if _tracer is None else _tracer.enqueueing(task, queue)


def running(claim: Any) -> AbstractContextManager[Any]:
    return _NOTHING if _tracer is None else _Harmless(_tracer, claim)


class _Harmless:
    """A span around a run. What the tracer raises is logged, and changes nothing about the run."""

    __slots__ = ("_claim", "_span", "_tracer")

    def __init__(self, tracer: Tracer, claim: Any) -> None:
        self._tracer, self._claim = tracer, claim
        self._span: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        try:
            span = self._tracer.running(self._claim)
            span.__enter__()
            self._span = span
        except Exception:
            logger.exception("Starting the span of a run failed")

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if self._span is None:
            return
        try:
            self._span.__exit__(kind, error, traceback)
        except Exception:
            logger.exception("Ending the span of a run failed")


def current() -> str | None:
    """A trace that cannot be read, or is too long, must not keep a job from being enqueued."""
    if _tracer is None:
        return None
    trace = _tracer.current()
    return trace if trace and len(trace) <= MAX_TRACE and trace.isascii() and trace.isprintable() else None
