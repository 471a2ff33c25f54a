"""Undoes what one case of a loop wrote, where the test itself is one transaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import transaction


@contextmanager
def undone() -> Iterator[None]:
    """Roll back to here at the end: rows, users and entries of the log."""
    case = transaction.atomic()
    case._from_testcase = True  # as that of the whole test: it is none of the code's own
    with case:
        yield
        transaction.set_rollback(True)
