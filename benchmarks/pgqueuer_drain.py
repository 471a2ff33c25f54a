"""PgQueuer's side. Run by a Python that has PgQueuer; it knows nothing of Django or of this project.

python pgqueuer_drain.py version
python pgqueuer_drain.py fill DSN JOBS
python pgqueuer_drain.py drain DSN BATCH HOW   waits for a line on standard input before it begins

HOW is ``connection`` or ``pool``: its driver has one connection for everything, or several.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import sys
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from pgqueuer import PgQueuer
from pgqueuer.adapters.drivers.asyncpg import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.adapters.drivers.psycopg import PsycopgDriver
from pgqueuer.domain.types import QueueExecutionMode
from pgqueuer.queries import Queries

CHUNK = 5_000
# Until a drained worker looks again whether it is done; the default of 30 s would only delay its end.
LAST_LOOK = timedelta(milliseconds=50)
POOL_SIZE = 4
Driver = AsyncpgDriver | AsyncpgPoolDriver | PsycopgDriver


def main() -> None:
    verb, *rest = sys.argv[1:]
    if verb == "version":
        print(f"{importlib.metadata.version('pgqueuer')} {driver_name()} {loop_name()}")
    elif verb == "fill":
        run(fill(rest[0], int(rest[1])))
    elif verb == "drain":
        run(drain(rest[0], int(rest[1]), rest[2]))


def driver_name() -> str:
    """Prefer the faster driver."""
    with suppress(ImportError):
        import asyncpg  # noqa: F401

        return "asyncpg"
    return "psycopg"


def loop_name() -> str:
    with suppress(ImportError):
        import uvloop  # noqa: F401

        return "uvloop"
    return "asyncio"


def run(work: Coroutine[None, None, None]) -> None:
    if loop_name() == "uvloop":
        import uvloop

        uvloop.run(work)
    else:
        asyncio.run(work)


@asynccontextmanager
async def connect(dsn: str, how: str = "connection") -> AsyncIterator[Driver]:
    if driver_name() == "asyncpg":
        import asyncpg

        if how == "pool":
            async with asyncpg.create_pool(dsn, min_size=POOL_SIZE, max_size=POOL_SIZE) as pool:
                yield AsyncpgPoolDriver(pool)
            return
        connection = await asyncpg.connect(dsn)
        try:
            yield AsyncpgDriver(connection)
        finally:
            await connection.close()
        return
    import psycopg

    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as session:
        yield PsycopgDriver(session)


async def fill(dsn: str, jobs: int) -> None:
    async with connect(dsn) as driver:
        queries = Queries(driver)
        if not await queries.schema_is_installed():
            await queries.install()
        await driver.execute("TRUNCATE pgqueuer, pgqueuer_log, pgqueuer_statistics")
        for start in range(0, jobs, CHUNK):
            count = min(CHUNK, jobs - start)
            await queries.enqueue(["nothing"] * count, [None] * count, [0] * count)


async def drain(dsn: str, batch: int, how: str) -> None:
    async with connect(dsn, how) as driver:
        worker = PgQueuer(driver)

        @worker.entrypoint("nothing")
        async def nothing(job: object) -> None:
            pass

        print("ready", flush=True)
        sys.stdin.readline()
        await worker.run(dequeue_timeout=LAST_LOOK, batch_size=batch, mode=QueueExecutionMode.drain)


if __name__ == "__main__":
    main()
