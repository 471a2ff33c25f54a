"""Collects the faults of many cases, so that one test shows all of them.

Where a case is a value and not a behaviour, a test is a loop::

    with all_faults() as about:
        for path in SOURCES:
            with about(path):
                assert has_docstring(path)

``each_of`` does the same for the values of its keyword parameters, where all of the test is such a loop::

    @each_of(*SOURCES)
    def test_a_docstring_is_there(*, path: Path) -> None:
        assert has_docstring(path)
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from itertools import product
from typing import Any

import pytest


@contextmanager
def all_faults() -> Iterator[Callable[[object], AbstractContextManager[None]]]:
    """Give a function that runs one case and keeps its fault. Fail at the end with all faults together."""
    faults: list[str] = []
    cases = 0

    @contextmanager
    def about(case: object) -> Iterator[None]:
        nonlocal cases
        cases += 1
        try:
            yield
        except (Exception, pytest.fail.Exception) as fault:
            line = traceback.extract_tb(fault.__traceback__)[-1]
            faults.append(
                f"{case}\n    {line.filename}:{line.lineno}: {line.line}\n    {type(fault).__name__}: {fault}"
            )

    yield about
    assert cases, "no case ran"
    if faults:
        pytest.fail(f"{len(faults)} of {cases} cases\n\n" + "\n\n".join(faults), pytrace=False)


def each_of(
    *cases: Any, around: Callable[[], AbstractContextManager[Any]] = nullcontext
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test with each of these as its keyword parameter, or as its parameters. ``around`` surrounds each case."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(test)
        fixtures = [one for one in signature.parameters.values() if one.kind is not one.KEYWORD_ONLY]
        names = [one for one in signature.parameters if one not in {fixture.name for fixture in fixtures}]

        @wraps(test)
        def asked(*args: Any, **kwargs: Any) -> None:
            with all_faults() as about:
                for case in cases:
                    with about(case), around():
                        values = (case,) if len(names) == 1 else case
                        test(*args, **kwargs, **dict(zip(names, values, strict=True)))

        asked.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return asked

    return decorate


def combined(*lists: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return each combination of these values. A tuple is several values."""
    return [tuple(value for part in parts for value in _as_tuple(part)) for parts in product(*lists)]


def _as_tuple(part: Any) -> tuple[Any, ...]:
    return part if type(part) is tuple else (part,)  # a named tuple is a value
