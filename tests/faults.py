"""Collects the faults of many cases, so that one test shows all of them.

Where a case is a value and not a behaviour, a test is a loop::

    with all_faults() as about:
        for path in SOURCES:
            with about(path):
                assert has_docstring(path)
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

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
