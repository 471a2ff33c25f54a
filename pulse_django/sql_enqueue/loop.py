"""Stores the options of this worker's tasks for ``pulse_enqueue()``.

Each worker checks every ten minutes that they are stored, with a connection that it closes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pulse_django import conf
from pulse_django.models import DeclaredTask
from pulse_django.queue.capability import Capability, KeeperLoop, LoopFacts, WorkerDatabase
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.declarations import Declarer, scope_of_code

from .task_options import tasks_of_code

PAUSE = 600.0  # seconds. Each check is a new connection, for a function that most projects never call


def start(database: WorkerDatabase, facts: LoopFacts) -> Callable[[], float]:
    booted_at: datetime | None = None
    tasks: Mapping[str, Any] = {}

    def step() -> float:
        nonlocal booted_at, tasks
        if facts.declarer:
            if booted_at is None:
                tasks = tasks_of_code()
                [(booted_at,)] = database.call(run_joined, database.alias, "SELECT clock_timestamp()", [])
            declarer = Declarer(scope_of_code(), facts.declarer, booted_at)
            declare = DeclaredTask.objects.db_manager(database.alias).declare
            database.call(declare, declarer, tasks, silence=conf.current().worker_silence)
            database.hang_up()
        return PAUSE

    return step


CAPABILITY = Capability(name="sql enqueue", loops=(KeeperLoop("declared tasks", PAUSE, start),))
