"""Paused tasks as people see them: until when, by whom and why, and how many jobs wait."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple

from pulse_django.store.paused_tasks import IS_IN_FORCE, IS_OF_TASK, IS_SET_ASIDE
from pulse_django.store.transactions import run_joined
from pulse_django.words.lane_keys import OF_TASK

from .read_only import read_only

MOST_LISTED = 1_000
MOST_COUNTED = 1_000  # jobs of each task

_PAUSED = f"""
SELECT paused.task, paused.paused_at, paused.paused_until, paused.reason, paused.paused_by, aside.jobs
FROM (
    SELECT pg_catalog.substr(lane_key::text, {len(OF_TASK) + 1}) AS task, paused_at, paused_until, reason, paused_by
    FROM pulse_django_pausedkey
    WHERE {IS_OF_TASK} AND {IS_IN_FORCE}
    ORDER BY lane_key
    LIMIT {MOST_LISTED}
) AS paused
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) AS jobs
    FROM (
        SELECT 1 FROM pulse_django_job_hot
        WHERE {IS_SET_ASIDE} AND task::text = paused.task
        ORDER BY id
        LIMIT {MOST_COUNTED + 1}
    ) AS counted
) AS aside
ORDER BY paused.task COLLATE "C"
"""  # noqa: S608 - made of constants


class PausedTaskFacts(NamedTuple):
    """A task of which no job starts now."""

    task: str
    paused_at: datetime
    paused_until: datetime | None  # None: until it is resumed
    reason: str
    paused_by: str
    set_aside: int  # jobs that wait, as far as watchdogs have found them

    @property
    def waiting(self) -> str:
        """How many jobs are known to wait, as text."""
        return str(self.set_aside) if self.set_aside <= MOST_COUNTED else f"{MOST_COUNTED}+"

    def as_json(self) -> dict[str, Any]:
        until = None if self.paused_until is None else self.paused_until.isoformat()
        return {
            "task": self.task, "paused_at": self.paused_at.isoformat(), "paused_until": until, "reason": self.reason,
            "paused_by": self.paused_by, "set_aside": min(self.set_aside, MOST_COUNTED),
            "is_more": self.set_aside > MOST_COUNTED,
        }  # fmt: skip


def paused_tasks(alias: str) -> list[PausedTaskFacts]:
    """Return the tasks that are paused."""
    with read_only(alias):
        return [PausedTaskFacts(*row) for row in run_joined(alias, _PAUSED, [])]
