"""django-ox: ten threads (its default is one), and connections that are kept."""

from __future__ import annotations

from django_side import DjangoSide, begin

begin("settings_ox")

from django_handlers import TASKS
from django_ox.bulk import enqueue_many

THREADS = 10


class WithOx(DjangoSide):
    packages = ("django-ox", "django", "psycopg")

    def one(self, task: str, *arguments: int) -> None:
        TASKS[task].enqueue(*arguments)

    def many(self, task: str, count: int) -> None:
        enqueue_many(TASKS[task], [((), {})] * count)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        flags = ["--queues", "default", "--processes", str(processes)]
        self.manage("ox_worker", *flags, *(["--concurrency", str(THREADS)] if tuned else []))


SIDE = WithOx()
