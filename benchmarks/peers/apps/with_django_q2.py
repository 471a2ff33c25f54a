"""django-q2 on its ORM broker. It has no async handlers."""

from __future__ import annotations

import os
import warnings

warnings.filterwarnings("ignore", message="Retry and timeout")

from django_side import DjangoSide, begin

begin("settings_q2")

import witness


def nothing() -> None:
    witness.call()


def stamp(number: int) -> None:
    witness.stamp(number)


def hold() -> None:
    witness.hold()


class WithQ2(DjangoSide):
    packages = ("django-q2", "django", "psycopg")

    def one(self, task: str, *arguments: int) -> None:
        from django_q.tasks import async_task

        async_task(f"with_django_q2.{task}", *arguments)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        if tuned:
            os.environ |= {"BENCH_TUNED": "1", "BENCH_PROCESSES": str(processes)}
        self.manage("qcluster")


SIDE = WithQ2()
