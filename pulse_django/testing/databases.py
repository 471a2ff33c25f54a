"""All databases that a test may use: changes are undone, and callbacks that wait for a commit are called."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from django.db import OperationalError, connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test.testcases import DatabaseOperationForbidden  # type: ignore[attr-defined]  # unknown to the stubs

from pulse_django.queue.database.transactions import is_in_callers_transaction

logger = logging.getLogger(__name__)


@contextmanager
def rolled_back() -> Iterator[list[str]]:
    """Roll back the changes of the block, on every database. Yield their aliases."""
    with ExitStack() as stack:
        closed = [alias for alias in connections if connections[alias].connection is None]
        aliases = [alias for alias in connections if _may_be_used(alias)]
        for alias in aliases:
            if alias in closed:  # left open, it would keep a test database from being dropped
                stack.callback(connections[alias].close)
            block = transaction.atomic(using=alias)
            block._from_testcase = True  # type: ignore[attr-defined]  # the mark by which Django and verbs know it
            stack.enter_context(block)
        yield aliases
        for alias in aliases:
            transaction.set_rollback(True, using=alias)


def _may_be_used(alias: str) -> bool:
    """Say whether Django lets this test use a database, and the database exists. Handlers write to no other."""
    try:
        with connections[alias].cursor():
            return True
    except (DatabaseOperationForbidden, OperationalError):
        return False


@contextmanager
def committing() -> Iterator[None]:
    """At the end of the block, call the functions that it registered with ``on_commit``, and those that these register.

    This is for transactions that a test case never commits. Transactions of the test itself call them anyway.
    """
    before = {connection.alias: len(connection.run_on_commit) for connection in connections.all(initialized_only=True)}
    yield
    while new := [
        entry
        for connection in connections.all(initialized_only=True)
        if connection.connection is not None and not is_in_callers_transaction(connection.alias)
        for entry in _taken(connection, before)
    ]:
        for _, callback, robust in new:
            _call(callback, robust)


def _taken(connection: BaseDatabaseWrapper, before: Mapping[str, int]) -> list[Any]:
    """Remove the functions that were registered since then, so that they are not called twice, and return them."""
    callbacks: list[Any] = connection.run_on_commit
    new = callbacks[before.get(connection.alias, 0) :]
    del callbacks[before.get(connection.alias, 0) :]
    return new


def _call(callback: Callable[[], object], robust: bool) -> None:
    try:
        callback()
    except Exception as error:
        if not robust:
            raise
        logger.exception("A robust on_commit() callback raised %s", type(error).__name__)
