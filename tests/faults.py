"""Collects the faults of many cases, so that one test shows all of them.

Where a case is a value and not a behaviour, a test is run for each::

    @each(SOURCES)
    def test_each_source_has_a_docstring(path: Path) -> None:
        assert has_docstring(path)

or it has a loop, where the cases are known only while it runs::

    with all_faults() as about:
        for path in sources():
            with about(path):
                assert has_docstring(path)
"""

from __future__ import annotations

import inspect
import reprlib
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from itertools import product
from typing import Any

import pytest

Test = Callable[..., None]


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


def each(*rows: Iterable[Any], before: Callable[[], object] = lambda: None) -> Callable[[Test], Test]:
    """Run a test for each of these rows, or each combination of several lists, and fail with all faults together.

    Its first parameters are the values of a row; the others are fixtures. ``before`` is called before each row.
    """
    cases = [[value for part in parts for value in as_tuple(part)] for parts in product(*rows)]

    def decorated(test: Test) -> Test:
        names = list(inspect.signature(test).parameters.values())
        is_method = names[0].name == "self"

        @wraps(test)
        def run_each(*self: Any, **fixtures: Any) -> None:
            with all_faults() as about:
                for values in cases:
                    with about(Row(values)):
                        before()
                        test(*self, *values, **fixtures)

        fixtures = names[is_method + len(cases[0]) :]
        run_each.__signature__ = inspect.Signature(names[:is_method] + fixtures)  # type: ignore[attr-defined]
        return run_each

    return decorated


class Row(list[Any]):
    """The values of a case, which may be endless, or raise where they are told."""

    def __str__(self) -> str:
        told = reprlib.Repr()
        told.maxstring = told.maxother = 200
        return ", ".join(map(told.repr, self))


def as_tuple(part: Any) -> tuple[Any, ...]:
    return part if type(part) is tuple else (part,)  # and no named tuple, which is a value
