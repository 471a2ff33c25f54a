"""Dramatiq on Redis: eight threads in each process, as by default. Async actors run on its own event loop."""

from __future__ import annotations

import os
import sys

import dramatiq
import witness
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import AsyncIO
from side import Side, redis_url

broker = RedisBroker(url=redis_url())
broker.add_middleware(AsyncIO())
dramatiq.set_broker(broker)


@dramatiq.actor
def nothing() -> None:
    witness.call()


@dramatiq.actor
async def nothing_async() -> None:
    witness.call()


@dramatiq.actor
def stamp(number: int) -> None:
    witness.stamp(number)


@dramatiq.actor(time_limit=10 * int(witness.FOREVER) * 1_000)
def hold() -> None:
    witness.hold()


TASKS = {"nothing": nothing, "nothing_async": nothing_async, "stamp": stamp, "hold": hold}


class WithDramatiq(Side):
    packages = ("dramatiq", "redis")

    def one(self, task: str, *arguments: int) -> None:
        TASKS[task].send(*arguments)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        command = [sys.executable, "-m", "dramatiq", "with_dramatiq", "--processes", str(processes)]
        os.execv(sys.executable, command)

    def counts(self) -> tuple[int, int | None]:
        return broker.client.hlen("dramatiq:default.msgs"), None


SIDE = WithDramatiq()
