"""New, empty databases on the server of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from testproject.new_project import ask


@contextmanager
def own_database() -> Iterator[str]:
    """A database that is dropped when the block ends."""
    name = f"test_fresh_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}_{os.getpid()}_{next(_numbers)}"
    ask("postgres", f"CREATE DATABASE {name}")
    try:
        yield name
    finally:
        ask("postgres", f"DROP DATABASE {name} WITH (FORCE)")


_numbers = iter(range(1_000_000))
