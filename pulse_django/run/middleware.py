"""Middleware: context managers from ``PULSE["MIDDLEWARE"]`` that wrap every handler.

    @contextmanager
    def timed(context):
        begin = time.monotonic()
        try:
            yield
        finally:
            histogram.observe(time.monotonic() - begin)

An exception of a middleware counts as one of the handler: a ``Snooze`` postpones the job, and an error fails the run.
The first middleware in the list is the outermost. Middleware also wraps async handlers, on the event loop, so it must
not block. For a chunk it is called once, with the ``Chunk`` instead of a context.

A middleware sees the exceptions of the handler, but cannot suppress them: the run ends with them anyway. To end it
differently, raise ``Discard`` or ``Snooze``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from pulse_django import conf

from .registry import imported

logger = logging.getLogger(__name__)

Middleware = Callable[..., AbstractContextManager[Any]]


@contextmanager
def surrounded(context: object) -> Iterator[None]:
    """Run the block inside all middleware. Exceptions of the block are raised even if a middleware suppresses them."""
    raised: BaseException | None = None
    with ExitStack() as stack:
        try:
            for enter in configured():
                stack.enter_context(enter(context))
            yield
        except BaseException as error:
            raised = error
            raise
    if raised is not None:
        logger.warning(
            'A middleware in PULSE["MIDDLEWARE"] suppressed %s; the run still ends with it', type(raised).__name__
        )
        raise raised


def configured() -> tuple[Middleware, ...]:
    """Return the middleware of this project. A worker that cannot load it does not start."""
    return _load(conf.current().middleware)


@lru_cache(maxsize=4)
def _load(paths: tuple[str, ...]) -> tuple[Middleware, ...]:
    found = tuple(imported("MIDDLEWARE", path) for path in paths)
    for path, one in zip(paths, found, strict=True):
        if why := _why_not(one):
            raise ImproperlyConfigured(f'PULSE["MIDDLEWARE"] names {path!r}, which {why}')
    return found


def _why_not(found: object) -> str:
    """Return why this cannot be a middleware, as far as it is known without calling it. Empty: it can."""
    if not callable(found):
        return f"is a {type(found).__name__} and not callable: use a function decorated with @contextmanager"
    if isgeneratorfunction(found):
        return "is a generator function: decorate it with contextlib.contextmanager"
    if iscoroutinefunction(found) or isasyncgenfunction(found):
        return "is async: middleware must be a synchronous context manager, also for async handlers"
    return ""
