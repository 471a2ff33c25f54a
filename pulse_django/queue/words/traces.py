"""Pass traces on to jobs, if a tracer is installed.

A job stores a W3C ``traceparent``, as an opaque text.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from pulse_django.safe_logging import SafeLogger

logger = SafeLogger(__name__)

MAX_TRACE = 64  # a traceparent has 55 characters


class Tracer(Protocol):
    def enqueueing(self, task: str, queue: str) -> AbstractContextManager[Any]:
        """Return a context manager around one enqueue."""

    def current(self) -> str | None:
        """Return the current trace, to store on the job."""

    def running(self, claim: Any) -> AbstractContextManager[Any]:
        """Return a context manager around one run, outside of all middleware."""


_tracer: Tracer | None = None
_NOTHING: AbstractContextManager[Any] = nullcontext()


def follow(tracer: Tracer | None) -> None:
    """Use this tracer from now on. None: no tracer."""
    global _tracer
    _tracer = tracer


def are_followed() -> bool:
    return _tracer is not None


def enqueueing(task: str, queue: str) -> AbstractContextManager[Any]:
    return _NOTHING if _tracer is None else _tracer.enqueueing(task, queue)


def running(claim: Any) -> AbstractContextManager[Any]:
    return _NOTHING if _tracer is None else _Harmless(_tracer, claim)


class _Harmless:
    """A span around a run. Exceptions of the tracer are logged, and do not affect the run."""

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
    """Return the current trace, or None if it cannot be read or is too long: the job is enqueued all the same."""
    if _tracer is None:
        return None
    trace = _tracer.current()
    return trace if trace and len(trace) <= MAX_TRACE and trace.isascii() and trace.isprintable() else None
