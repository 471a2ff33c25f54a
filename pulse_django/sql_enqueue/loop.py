"""Stores the options of this worker's tasks for ``pulse_enqueue()``.

Each worker checks every ten minutes that they are stored, with a connection that it closes again.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pulse_django import conf
from pulse_django.models import DeclaredTask
from pulse_django.queue.capability import Capability, KeeperLoop
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.declarations import Declarer, scope_of_code

from .task_options import tasks_of_code

PAUSE = 600.0  # seconds. Each check is a new connection, for a function that most projects never call


class DeclaredTasks(KeeperLoop):
    purpose, longest_pause = "declared tasks", PAUSE
    _booted_at: datetime | None = None
    _tasks: Mapping[str, Any] = {}

    def run_once(self) -> float:
        if self.facts.declarer:
            database = self.database
            if self._booted_at is None:
                self._tasks = tasks_of_code()
                [(self._booted_at,)] = database.call(run_joined, database.alias, "SELECT clock_timestamp()", [])
            declarer = Declarer(scope_of_code(), self.facts.declarer, self._booted_at)
            declare = DeclaredTask.objects.db_manager(database.alias).declare
            database.call(declare, declarer, self._tasks, silence=conf.current().worker_silence)
            database.hang_up()
        return PAUSE


CAPABILITY = Capability(name="sql enqueue", loops=(DeclaredTasks,))
