"""Celery on Redis: processes, a prefetch of sixteen for each, no results, early acknowledgement as by default."""

from __future__ import annotations

import os
import sys

import witness
from celery import Celery
from side import Side, redis_url

app = Celery("bench", broker=redis_url())
if os.environ.get("BENCH_TUNED"):
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=16)


@app.task(name="nothing")
def nothing() -> None:
    witness.call()


@app.task(name="stamp")
def stamp(number: int) -> None:
    witness.stamp(number)


@app.task(name="hold")
def hold() -> None:
    witness.hold()


TASKS = {"nothing": nothing, "stamp": stamp, "hold": hold}


class WithCelery(Side):
    packages = ("celery", "kombu", "redis")

    def one(self, task: str, *arguments: int) -> None:
        TASKS[task].delay(*arguments)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        flags = ["--concurrency", str(processes), "--without-gossip", "--without-mingle"] if tuned else []
        os.environ |= {"BENCH_TUNED": "1"} if tuned else {}
        command = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "--loglevel", "WARNING", *flags]
        os.execve(sys.executable, command, os.environ | {"C_FORCE_ROOT": "1"})

    def counts(self) -> tuple[int, int | None]:
        with app.connection_for_read() as connection:
            client = connection.default_channel.client
            return client.llen("celery") + client.hlen("unacked"), None


SIDE = WithCelery()
