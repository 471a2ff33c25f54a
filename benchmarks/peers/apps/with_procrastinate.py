"""Procrastinate with psycopg: ten jobs at once (its default is one)."""

from __future__ import annotations

import witness
from procrastinate import App, PsycopgConnector
from side import AsyncSide, chunks, dsn

AT_ONCE = 10
app = App(connector=PsycopgConnector(conninfo=dsn()))


@app.task(name="nothing")
def nothing() -> None:
    witness.call()


@app.task(name="nothing_async")
async def nothing_async() -> None:
    witness.call()


@app.task(name="stamp")
def stamp(number: int) -> None:
    witness.stamp(number)


@app.task(name="hold")
def hold() -> None:
    witness.hold()


TASKS = {"nothing": nothing, "nothing_async": nothing_async, "stamp": stamp, "hold": hold}


class WithProcrastinate(AsyncSide):
    packages = ("procrastinate", "psycopg")

    def install(self) -> None:
        self.run(self._install())

    async def _install(self) -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    async def connect(self) -> None:
        await app.open_async()

    async def disconnect(self) -> None:
        await app.close_async()

    async def enqueue(self, task: str, *arguments: int) -> None:
        await TASKS[task].defer_async(**({"number": arguments[0]} if arguments else {}))

    async def enqueue_many(self, task: str, count: int) -> None:
        for size in chunks(count):
            await TASKS[task].batch_defer_async(*[{}] * size)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        self.run(self._work(tuned))

    async def _work(self, tuned: bool) -> None:
        async with app.open_async():
            await app.run_worker_async(**({"concurrency": AT_ONCE} if tuned else {}))


SIDE = WithProcrastinate()
