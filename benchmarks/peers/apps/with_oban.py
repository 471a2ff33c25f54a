"""Oban for Python without Pro, on uvloop and orjson as its command line has it: a hundred at once."""

from __future__ import annotations

import asyncio

import orjson
import uvloop
import witness
from oban import Oban, worker
from oban.schema import install
from psycopg.types.json import set_json_dumps, set_json_loads
from side import AsyncSide, chunks, dsn

AT_ONCE, DEFAULT = 100, 10


@worker(queue="default")
class NothingAsync:
    async def process(self, job: object) -> None:
        witness.call()


@worker(queue="default")
class Stamp:
    async def process(self, job: object) -> None:
        witness.stamp(job.args["number"])  # type: ignore[attr-defined]


@worker(queue="default")
class Hold:
    async def process(self, job: object) -> None:
        await witness.hold_async()


TASKS = {"nothing_async": NothingAsync, "stamp": Stamp, "hold": Hold}


class WithOban(AsyncSide):
    packages = ("oban", "psycopg", "uvloop")

    def install(self) -> None:
        self.run(self._install())

    async def _install(self) -> None:
        pool = await Oban.create_pool(dsn())
        await install(pool)
        await pool.close()

    async def connect(self) -> None:
        self.pool = await Oban.create_pool(dsn())
        self.oban = await Oban(pool=self.pool).start()

    async def disconnect(self) -> None:
        await self.oban.stop()
        await self.pool.close()

    async def enqueue(self, task: str, *arguments: int) -> None:
        await self.oban.enqueue(TASKS[task].new({"number": arguments[0]} if arguments else {}))

    async def enqueue_many(self, task: str, count: int) -> None:
        for size in chunks(count):
            await self.oban.enqueue_many(*[TASKS[task].new({}) for _ in range(size)])

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        set_json_dumps(orjson.dumps)
        set_json_loads(orjson.loads)
        uvloop.run(self._work(AT_ONCE if tuned else DEFAULT))

    async def _work(self, at_once: int) -> None:
        pool = await Oban.create_pool(dsn())
        async with Oban(pool=pool, queues={"default": at_once}):
            await asyncio.Event().wait()


SIDE = WithOban()
