"""PgQueuer with asyncpg and uvloop: one connection, batches of 500 (its default is 10)."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import asyncpg
import uvloop
import witness
from django_side import begin
from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver
from pgqueuer.queries import Queries
from side import AsyncSide, chunks, dsn

begin("settings_plain")

import rows

BATCH, THREADS = 500, 8


class WithPgQueuer(AsyncSide):
    packages = ("pgqueuer", "asyncpg", "uvloop")

    def install(self) -> None:
        self.run(self._install())

    async def _install(self) -> None:
        await self.connect()
        await self.queries.install()
        await asyncio.to_thread(rows.make_table)

    async def connect(self) -> None:
        self.connection = await asyncpg.connect(dsn())
        self.queries = Queries(AsyncpgDriver(self.connection))

    async def enqueue(self, task: str, *arguments: int) -> None:
        await self.queries.enqueue(task, str(arguments[0]).encode() if arguments else None)

    async def enqueue_many(self, task: str, count: int) -> None:
        for size in chunks(count):
            await self.queries.enqueue([task] * size, [None] * size, [0] * size)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        uvloop.run(self._work(tuned))

    async def _work(self, tuned: bool) -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(THREADS))
        worker = PgQueuer(AsyncpgDriver(await asyncpg.connect(dsn())))

        @worker.entrypoint("nothing")
        async def nothing(job: object) -> None:  # blocking code is to be wrapped like this
            await asyncio.to_thread(witness.call)

        @worker.entrypoint("nothing_async")
        async def nothing_async(job: object) -> None:
            witness.call()

        @worker.entrypoint("insert")
        async def insert(job: object) -> None:
            await asyncio.to_thread(rows.insert)

        @worker.entrypoint("insert_async")
        async def insert_async(job: object) -> None:
            await rows.insert_async()

        @worker.entrypoint("stamp")
        async def stamp(job: object) -> None:
            witness.stamp(int(job.payload))  # type: ignore[attr-defined]

        @worker.entrypoint("hold")
        async def hold(job: object) -> None:
            await witness.hold_async()

        await (worker.run(batch_size=BATCH) if tuned else worker.run())


SIDE = WithPgQueuer()
