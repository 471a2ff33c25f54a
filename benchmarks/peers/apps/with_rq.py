"""RQ: workers that run jobs in their own process (by default each job is a fork), and keep no results."""

from __future__ import annotations

import os
import sys

import witness
from redis import Redis
from rq import Queue
from side import Side, chunks, redis_url

HERE = os.path.dirname(os.path.abspath(__file__))


def nothing() -> None:
    witness.call()


async def nothing_async() -> None:
    witness.call()


def stamp(number: int) -> None:
    witness.stamp(number)


def hold() -> None:
    witness.hold()


class WithRq(Side):
    packages = ("rq", "redis")

    def open(self) -> None:
        self.queue = Queue(connection=Redis.from_url(redis_url()))

    def one(self, task: str, *arguments: int) -> None:
        self.queue.enqueue(f"with_rq.{task}", *arguments, result_ttl=0, job_timeout=2 * int(witness.FOREVER))

    def many(self, task: str, count: int) -> None:
        for size in chunks(count, 1_000):
            self.queue.enqueue_many([Queue.prepare_data(f"with_rq.{task}", result_ttl=0) for _ in range(size)])

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        rq = os.path.join(os.path.dirname(sys.executable), "rq")
        pool = ["worker-pool", "--num-workers", str(processes), "--worker-class", "rq.worker.SimpleWorker"]
        flags = [*(pool if tuned else ["worker"]), "--quiet", "--url", redis_url(), "--path", HERE]
        os.execv(sys.executable, [sys.executable, rq, *flags])

    def counts(self) -> tuple[int, int | None]:
        self.open()
        return self.queue.count + self.queue.started_job_registry.count, None


SIDE = WithRq()
