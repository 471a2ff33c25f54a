"""Enqueue by SQL, and compare with what Python enqueues."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

from pulse_django.models import DeclaredTask
from pulse_django.queue.declarations import Declarer
from pulse_django.schedules.verbs import clock
from pulse_django.sql_enqueue.task_options import tasks_of_code
from tests.queue.steps import sql

# No two jobs have the same of the first. Instants are compared with that of their own job. The size is that of JSON as
# PostgreSQL spells it, with spaces.
_ROW = """
SELECT to_jsonb(job) - '{id,created_at,next_run_at,expires_at,payload_bytes}'::text[] AS columns,
    round(extract(epoch FROM next_run_at - created_at) / 60), round(extract(epoch FROM expires_at - created_at) / 60)
FROM pulse_django_job AS job
WHERE id = %s
"""


def declare(worker: str = "w:1", *, later: timedelta = timedelta(), **tasks: Any) -> bool:
    """Declare as a worker that started so long after now; without ``tasks``, those of this process."""
    declarer = Declarer("project", worker, clock("default") + later)
    return DeclaredTask.objects.declare(declarer, tasks or tasks_of_code(), silence=timedelta(minutes=1))


def pulse_enqueue(task: str, args: Any = (), kwargs: Any = None, **options: str) -> int:
    """Call the function. ``options`` are texts of SQL."""
    more = "".join(f", {name} => {value}" for name, value in options.items())
    statement = f"SELECT pulse_enqueue(%s, %s, %s{more.replace('%', '%%')})"
    [(job_id,)] = sql(statement, task, json.dumps(args), json.dumps(kwargs or {}))
    return int(job_id)


def row(job_id: int | str) -> Any:
    [(columns, *instants)] = sql(_ROW, int(job_id))
    return json.loads(columns), *instants
