"""One queue as the harness sees it. Each ``with_*.py`` makes one, in an environment that has the queue and its drivers.

The tasks have the same names everywhere: ``nothing`` and ``nothing_async`` count a call, ``stamp`` notes when it was
called, ``hold`` says that it has begun and does not end.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
import platform
from collections.abc import Coroutine
from typing import Any

CHUNK = 5_000  # jobs in one call of a bulk enqueue


class Side:
    packages: tuple[str, ...] = ()

    def version(self) -> str:
        found = [f"{name} {importlib.metadata.version(name)}" for name in self.packages]
        return ", ".join([*found, f"Python {platform.python_version()}"])

    def install(self) -> None:
        """Make the tables."""

    def open(self) -> None:
        """Connect, as far as enqueueing needs it."""

    def one(self, task: str, *arguments: int) -> None:
        raise NotImplementedError

    def many(self, task: str, count: int) -> None:
        """Enqueue so many jobs without arguments in the way that is meant for many."""
        raise NotImplementedError

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        """Be a worker until killed."""
        raise NotImplementedError

    def counts(self) -> tuple[int, int | None]:
        """Return how many jobs are not done, and how many are if that is kept. Only for queues without SQL."""
        raise NotImplementedError

    def close(self) -> None:
        """Hand over what a client may still hold back."""


class AsyncSide(Side):
    """For those whose client is asynchronous."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)

    def open(self) -> None:
        self.run(self.connect())

    async def connect(self) -> None: ...

    async def disconnect(self) -> None: ...

    def one(self, task: str, *arguments: int) -> None:
        self.run(self.enqueue(task, *arguments))

    def many(self, task: str, count: int) -> None:
        self.run(self.enqueue_many(task, count))

    async def enqueue(self, task: str, *arguments: int) -> None:
        raise NotImplementedError

    async def enqueue_many(self, task: str, count: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.run(self.disconnect())


def chunks(count: int, size: int = CHUNK) -> list[int]:
    return [min(size, count - start) for start in range(0, count, size)]


def dsn() -> str:
    return os.environ["BENCH_DSN"]


def redis_url() -> str:
    return os.environ["BENCH_REDIS"]
