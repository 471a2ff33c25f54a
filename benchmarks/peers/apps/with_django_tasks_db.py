"""django-tasks-db: its worker runs one task at a time, so two processes are two workers."""

from __future__ import annotations

from django_side import DjangoSide, begin

begin("settings_tasks_db")

from django_handlers import TASKS


class WithTasksDb(DjangoSide):
    packages = ("django-tasks-db", "django", "psycopg")

    def one(self, task: str, *arguments: int) -> None:
        TASKS[task].enqueue(*arguments)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        self.manage("db_worker", *(["--no-startup-delay"] if tuned else []))


SIDE = WithTasksDb()
