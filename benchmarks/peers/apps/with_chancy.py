"""Chancy: its async and its thread executor, a hundred jobs at once, polling again as soon as one has ended."""

from __future__ import annotations

import witness
from chancy import Chancy, Queue, Worker, job
from side import AsyncSide, chunks, dsn

AT_ONCE = 100


@job(queue="threads")
def nothing() -> None:
    witness.call()


@job(queue="async")
async def nothing_async() -> None:
    witness.call()


@job(queue="threads")
def stamp(*, number: int) -> None:
    witness.stamp(number)


@job(queue="default")
def hold() -> None:
    witness.hold()


TASKS = {"nothing": nothing, "nothing_async": nothing_async, "stamp": stamp, "hold": hold}


class WithChancy(AsyncSide):
    packages = ("chancy", "psycopg")

    def install(self) -> None:
        self.run(self._install())

    async def _install(self) -> None:
        async with Chancy(dsn()) as chancy:
            await chancy.migrate()
            await chancy.declare(Queue("default"))
            busy = {"concurrency": AT_ONCE, "eager_polling": True}
            await chancy.declare(Queue("async", executor=Chancy.Executor.Async, **busy))
            await chancy.declare(Queue("threads", executor=Chancy.Executor.Threaded, **busy))

    async def connect(self) -> None:
        self.chancy = Chancy(dsn())
        await self.chancy.__aenter__()

    async def disconnect(self) -> None:
        await self.chancy.__aexit__(None, None, None)

    async def enqueue(self, task: str, *arguments: int) -> None:
        new = TASKS[task].job
        await self.chancy.push(new.with_kwargs(number=arguments[0]) if arguments else new)

    async def enqueue_many(self, task: str, count: int) -> None:
        for size in chunks(count):
            async for _ in self.chancy.push_many([TASKS[task].job] * size):
                pass

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        self.run(self._work())

    async def _work(self) -> None:
        async with Chancy(dsn()) as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()


SIDE = WithChancy()
