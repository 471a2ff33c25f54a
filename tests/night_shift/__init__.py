"""The night shift: jobs of some tasks start at night only.

It hands in a gate with the reason that ``explain()`` gives, a field of new jobs, and work for watchdogs. Nights are
rows of a table of its own, so that people can begin and end one at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.db import connections

from pulse_django.queue.capability import CallFields, Capability, Gate, StepDone, SweepStep, WorkerDatabase
from pulse_django.run.registry import Task, key_of

TASKS = ("night.report", "night.backup")
TABLE = "CREATE TABLE night_shift (began_at timestamptz NOT NULL, ends_at timestamptz NOT NULL)"
_IS_ON = (
    "EXISTS (SELECT 1 FROM night_shift WHERE began_at <= statement_timestamp() AND ends_at > statement_timestamp())"
)
_PAST = "night_shift WHERE ends_at < statement_timestamp() - interval '1 hour'"


class GivingUp(CallFields):
    """Jobs of the night are not retried for longer than two days."""

    def is_used(self, task: Task) -> bool:
        return key_of(task) in TASKS

    def fields(self, task: Task, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {"give_up_after": timedelta(days=2)}


class ForgettingNights(SweepStep):
    name = "past nights"
    says = {"nights": 0}
    exists = f"EXISTS (SELECT 1 FROM {_PAST})"

    def run(self, database: WorkerDatabase) -> StepDone:
        return StepDone(said={"nights": database.call(_forget, database.alias)})


def _forget(alias: str) -> int:
    with connections[alias].cursor() as cursor:
        cursor.execute(f"DELETE FROM {_PAST}")
        return cursor.rowcount


CAPABILITY = Capability(
    name="night_shift",
    reads=f"SELECT '{{{','.join(TASKS)}}}'::text[] AS tasks, {_IS_ON} AS is_on",
    gates=(
        Gate(
            code="by-day",
            job="night_shift.is_on OR {job}.task::text <> ALL (night_shift.tasks)",
            of_tasks=True,
            may_shut=f"NOT {_IS_ON}",
            about=("task",),
            sentence="%(task)s starts at night only.",
        ),
    ),
    call_fields=GivingUp(),
    sweeps=(ForgettingNights(),),
)
