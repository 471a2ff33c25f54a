"""Middleware: context managers that wrap every handler, as ``PULSE["MIDDLEWARE"]`` names them.

    @contextmanager
    def timed(context):
        begin = time.monotonic()
        try:
            yield
        finally:
            histogram.observe(time.monotonic() - begin)

What one raises on its way in ends the run as if the handler had raised it: a Snooze postpones, an exception fails.
The first one named is the outermost. They stand around async handlers too, on the event loop: they must not block.

The handler of a chunk is called once, and so are they: instead of a context they get the ``Chunk``.

A middleware sees what the handler raises and cannot swallow it: the run ends as if it had not tried. Raise
``Discard`` or ``Snooze`` to end a run otherwise.
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
    """Run the block inside of all middleware. What is raised in it gets out, even if one of them swallows it."""
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
    """Return the middleware of this project; a worker that cannot load or call one does not start."""
    return _load(conf.current().middleware)


@lru_cache(maxsize=4)
def _load(paths: tuple[str, ...]) -> tuple[Middleware, ...]:
    found = tuple(imported("MIDDLEWARE", path) for path in paths)
    for path, one in zip(paths, found, strict=True):
        if why := _why_not(one):
            raise ImproperlyConfigured(f'PULSE["MIDDLEWARE"] names {path!r}, which {why}')
    return found


def _why_not(found: object) -> str:
    """Say why this cannot make a context manager, as far as one can know without calling it."""
    if not callable(found):
        return f"is a {type(found).__name__} and not callable: use a function decorated with @contextmanager"
    if isgeneratorfunction(found):
        return "is a generator function: decorate it with contextlib.contextmanager"
    if iscoroutinefunction(found) or isasyncgenfunction(found):
        return "is async: middleware must be a synchronous context manager, also for async handlers"
    return ""
