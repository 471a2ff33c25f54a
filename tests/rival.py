"""A second connection, stepped by hand: races are told one statement at a time instead of hoped for."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from django.db import connection, transaction

from tests.citus import is_on_citus

T = TypeVar("T")
PATIENCE = 20.0  # seconds until a step that never comes fails the test
# Not pg_stat_activity: within a transaction it goes on showing who was there at the first look.
BLOCKED = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND %s = ANY (pg_blocking_pids(pid)))"
# Sessions of Citus wait for each other on the node. Their numbers there hold those that they have here.
BLOCKED_ON_CITUS = "SELECT EXISTS (SELECT FROM citus_lock_waits WHERE blocking_gpid %% 10000000000 = %s)"


class Rival:
    """A thread with a Django connection of its own. ``run`` waits for a step, ``start`` does not."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1)

    @property
    def pid(self) -> int:
        """The server process of this connection. Behind a transaction pooler it is another's after each transaction."""
        return self.run(backend_pid)

    def run(self, step: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return self.start(step, *args, **kwargs).result(PATIENCE)

    def start(self, step: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
        return self._thread.submit(step, *args, **kwargs)

    def begin(self) -> None:
        self.run(transaction.set_autocommit, False)

    def commit(self) -> None:
        self.run(_end, transaction.commit)

    def rollback(self) -> None:
        self.run(_end, transaction.rollback)

    def lock_duties(self) -> None:
        self.run(_execute, "SELECT name FROM pulse_django_duty FOR UPDATE", [])

    def lock_row(self, job_id: int) -> None:
        """Lock a job's row in an open transaction, as a slow statement would."""
        self.begin()
        self.run(_execute, "SELECT id FROM pulse_django_job WHERE id = %s FOR UPDATE", [job_id])

    def wait_until_blocked(self, by: int) -> None:
        """Return once the server says that somebody, so this one, waits for a lock of that backend."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            with connection.cursor() as cursor:
                cursor.execute(BLOCKED_ON_CITUS if is_on_citus() else BLOCKED, [by])
                [(blocked,)] = cursor.fetchall()
            if blocked:
                return
        raise AssertionError("the rival never waited for a lock")

    @contextmanager
    def blocks(self, step: Callable[..., T], *args: Any, **kwargs: Any) -> Iterator[Future[T]]:
        """Start a step on a third connection, and go on once it waits for this one."""
        waiter = Rival()
        try:
            waiting = waiter.start(step, *args, **kwargs)
            waiter.wait_until_blocked(by=self.pid)
            yield waiting
        finally:
            waiter.close()

    def close(self) -> None:
        self.run(_close)
        self._thread.shutdown()


def backend_pid() -> int:
    """The server process of this thread's connection."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        [(pid,)] = cursor.fetchall()
    return int(pid)


def _execute(sql: str, params: list[Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, params)


def _end(how: Callable[[], None]) -> None:
    how()
    transaction.set_autocommit(True)


def _close() -> None:
    if not connection.get_autocommit():
        transaction.rollback()
    connection.close()
