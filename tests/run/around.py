"""Middleware, good and bad."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def swallows(context: Any) -> Iterator[None]:
    with suppress(BaseException):
        yield


@contextmanager
def replaces(context: Any) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise LookupError("replaced") from error


@contextmanager
def raises_on_the_way_in(context: Any) -> Iterator[None]:
    raise ValueError("not in")
    yield


@contextmanager
def passes(context: Any) -> Iterator[None]:
    yield


def forgot_the_decorator(context: Any) -> Iterator[None]:
    yield


async def is_a_coroutine(context: Any) -> None:
    pass


async def is_an_async_generator(context: Any) -> AsyncIterator[None]:
    yield


not_callable = "a text"
