"""awa: a hundred jobs at once. Its handlers are async."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import awa
import witness
from side import AsyncSide
from side import dsn as libpq_dsn

AT_ONCE, DEFAULT = 100, 10
CONNECTIONS = 24  # as it advises: four for each queue, and twenty


def dsn() -> str:
    """Its driver takes the folder of a socket only beside the name of a host."""
    return libpq_dsn().replace("@/", "@localhost/")


@dataclass
class NothingAsync:
    pass


@dataclass
class Stamp:
    number: int


@dataclass
class Hold:
    pass


TASKS = {"nothing_async": NothingAsync, "stamp": Stamp, "hold": Hold}


class WithAwa(AsyncSide):
    packages = ("awa-pg",)

    def install(self) -> None:
        self.run(self._install())

    async def _install(self) -> None:
        async with awa.AsyncClient(dsn()) as client:
            await client.migrate()
            await client.install_queue_storage()

    async def connect(self) -> None:
        self.client = awa.AsyncClient(dsn())

    async def disconnect(self) -> None:
        await self.client.close()

    async def enqueue(self, task: str, *arguments: int) -> None:
        await self.client.insert(TASKS[task](*arguments), queue="default")

    async def enqueue_many(self, task: str, count: int) -> None:
        await self.client.enqueue_many_copy([TASKS[task]() for _ in range(count)], queue="default")

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        self.run(self._work(AT_ONCE, CONNECTIONS) if tuned else self._work(DEFAULT, DEFAULT))

    async def _work(self, at_once: int, connections: int) -> None:
        client = awa.AsyncClient(dsn(), max_connections=connections)

        @client.task(NothingAsync, queue="default")
        async def nothing_async(job: object) -> None:
            witness.call()

        @client.task(Stamp, queue="default")
        async def stamp(job: object) -> None:
            witness.stamp(job.args.number)  # type: ignore[attr-defined]

        @client.task(Hold, queue="default")
        async def hold(job: object) -> None:
            await witness.hold_async()

        await client.start([("default", at_once)])
        await asyncio.Event().wait()


SIDE = WithAwa()
