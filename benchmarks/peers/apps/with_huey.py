"""Huey on Redis: one process as its worker, results not kept, and a blocking read, as by default."""

from __future__ import annotations

import os
import sys

import witness
from huey import RedisHuey
from side import Side, redis_url

huey = RedisHuey("bench", url=redis_url(), results=False)


@huey.task()
def nothing() -> None:
    witness.call()


@huey.task()
def stamp(number: int) -> None:
    witness.stamp(number)


@huey.task()
def hold() -> None:
    witness.hold()


TASKS = {"nothing": nothing, "stamp": stamp, "hold": hold}


class WithHuey(Side):
    packages = ("huey", "redis")

    def one(self, task: str, *arguments: int) -> None:
        TASKS[task](*arguments)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        flags = ["--workers", str(processes), "--worker-type", "process", "--quiet"] if tuned else []
        consumer = os.path.join(os.path.dirname(sys.executable), "huey_consumer")
        os.execv(sys.executable, [sys.executable, consumer, "with_huey.huey", *flags])

    def counts(self) -> tuple[int, int | None]:
        return huey.pending_count(), None


SIDE = WithHuey()
