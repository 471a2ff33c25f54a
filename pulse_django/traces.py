"""The trace that a job belongs to, for whoever follows requests through systems. Nobody does until somebody says so.

What travels on the job is a W3C ``traceparent``; this module knows nothing more of it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

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


def enqueueing(task: str, queue: str) -> AbstractContextManager[Any]:
    return _NOTHING if _tracer is None else _tracer.enqueueing(task, queue)


def running(claim: Any) -> AbstractContextManager[Any]:
    return _NOTHING if _tracer is None else _tracer.running(claim)


def current() -> str | None:
    """A trace that cannot be told, or is too long, must not keep a job from being enqueued."""
    if _tracer is None:
        return None
    trace = _tracer.current()
    return trace if trace and len(trace) <= MAX_TRACE and trace.isascii() and trace.isprintable() else None
