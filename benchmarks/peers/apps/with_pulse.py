"""This project, with its worker at its default settings."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent
os.environ["DATABASE_URL"] = os.environ["BENCH_DSN"].replace("postgresql://", "postgres://", 1)
os.environ["PULSE"] = json.dumps({"TASK_MODULES": ["django_handlers"]})
os.environ["DEBUG"] = "0"
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "testproject.settings")

import django
from django.apps import apps

if not apps.ready and not apps.loading:
    django.setup()

import rows
from django_handlers import TASKS
from side import Side

from pulse_django import enqueue_many


class Pulse(Side):
    packages = ("django", "psycopg")

    def version(self) -> str:
        import pulse_django

        return f"pulse_django {pulse_django.__version__}, {super().version()}"

    def install(self) -> None:
        from django.core.management import call_command

        call_command("migrate", verbosity=0)
        rows.make_table()

    def one(self, task: str, *arguments: int) -> None:
        TASKS[task].enqueue(*arguments)

    def many(self, task: str, count: int) -> None:
        enqueue_many(TASKS[task], [()] * count)

    def work(self, mode: str, processes: int, *, tuned: bool) -> None:
        command = [sys.executable, str(ROOT / "manage.py"), "pulse_worker", "--processes", str(processes)]
        os.execv(sys.executable, command if tuned else command[:3])


SIDE = Pulse()
