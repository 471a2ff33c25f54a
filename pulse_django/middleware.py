"""Middleware: context managers that stand around every handler, as ``PULSE["MIDDLEWARE"]`` names them.

    @contextmanager
    def timed(context):
        begin = time.monotonic()
        try:
            yield
        finally:
            histogram.observe(time.monotonic() - begin)

What one raises on its way in ends the run as if the handler had raised it: a Snooze postpones, an exception fails.
The first one named is the outermost. They stand around async handlers too, on the event loop: they must not block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured

from . import conf

if TYPE_CHECKING:
    from .context import Context

Middleware = Callable[..., AbstractContextManager[Any]]


@contextmanager
def surrounded(context: Context | None) -> Iterator[None]:
    """Run the block inside of all middleware."""
    with ExitStack() as stack:
        for enter in configured():
            stack.enter_context(enter(context))
        yield


def configured() -> tuple[Middleware, ...]:
    """Return the middleware of this project; a worker that cannot import one does not start."""
    return _load(conf.current().middleware)


@lru_cache(maxsize=4)
def _load(paths: tuple[str, ...]) -> tuple[Middleware, ...]:
    return tuple(_loaded(path) for path in paths)


def _loaded(path: str) -> Middleware:
    module, _, name = path.rpartition(".")
    try:
        found: Middleware = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ImproperlyConfigured(f'PULSE["MIDDLEWARE"] names {path!r}, which cannot be imported: {error}') from error
    return found
