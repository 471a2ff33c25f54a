"""Paused tasks as people see them: until when, by whom and why, and how many jobs wait."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from pulse_django.store.constraints import IS_CLAIMABLE
from pulse_django.store.queues import IS_IN_FORCE, IS_OF_TASK, IS_SET_ASIDE, QUEUE_OF_PAUSE, TASK_OF_PAUSE
from pulse_django.store.transactions import run_joined

from .read_only import read_only

MOST_LISTED = 1_000
MOST_COUNTED = 1_000  # jobs of each task

_PAUSED = f"""
SELECT paused.task, paused.queue, paused.paused_at, paused.paused_until, paused.reason, paused.paused_by, aside.jobs
FROM (
    SELECT {TASK_OF_PAUSE} AS task, {QUEUE_OF_PAUSE} AS queue, paused_at, paused_until, reason, paused_by
    FROM pulse_django_pausedkey
    WHERE {IS_OF_TASK} AND {IS_IN_FORCE}
    ORDER BY lane_key
    LIMIT {MOST_LISTED}
) AS paused
CROSS JOIN LATERAL (
    SELECT pg_catalog.count(*) AS jobs
    FROM (
        (
            SELECT 1 FROM pulse_django_job_hot
            WHERE paused.queue = '' AND {IS_SET_ASIDE} AND task::text = paused.task
            ORDER BY queue, id
            LIMIT {MOST_COUNTED + 1}
        )
        UNION ALL
        (
            SELECT 1 FROM pulse_django_job_hot
            WHERE {IS_SET_ASIDE} AND task::text = paused.task AND queue::text = paused.queue
            ORDER BY id
            LIMIT {MOST_COUNTED + 1}
        )
    ) AS counted
) AS aside
ORDER BY paused.task COLLATE "C", paused.queue COLLATE "C"
"""  # noqa: S608 - made of constants

# Without an index: a pause is rare, and what is far behind in its line is counted, too.
_WAITING = f"""
SELECT count(*) FROM (
    SELECT 1 FROM pulse_django_job_hot
    WHERE {IS_CLAIMABLE} AND task::text = ANY (%s::text[]) AND (%s::text IS NULL OR queue::text = %s::text)
    LIMIT {MOST_COUNTED + 1}
) AS counted
"""  # noqa: S608 - made of constants


class PausedTaskFacts(NamedTuple):
    """A task of which no job starts now, in all queues or in one."""

    task: str
    queue: str  # empty: in all
    paused_at: datetime
    paused_until: datetime | None  # None: until it is resumed
    reason: str
    paused_by: str
    set_aside: int  # jobs that wait, as far as watchdogs have found them

    @property
    def waiting(self) -> str:
        """How many jobs are known to wait, as text."""
        return counted_in_words(self.set_aside)

    def as_json(self) -> dict[str, Any]:
        until = None if self.paused_until is None else self.paused_until.isoformat()
        return {
            "task": self.task, "queue": self.queue or None,
            "paused_at": self.paused_at.isoformat(), "paused_until": until,
            "reason": self.reason, "paused_by": self.paused_by, "set_aside": min(self.set_aside, MOST_COUNTED),
            "is_more": self.set_aside > MOST_COUNTED,
        }  # fmt: skip


def paused_tasks(alias: str) -> list[PausedTaskFacts]:
    """Return the tasks that are paused. One that is paused in several queues is there several times."""
    with read_only(alias):
        return [PausedTaskFacts(*row) for row in run_joined(alias, _PAUSED, [])]


def waiting_jobs(alias: str, tasks: Collection[str], queue: str | None) -> int:
    """Count the jobs that a pause of these names stops: at most one more than ``MOST_COUNTED``."""
    with read_only(alias):
        [(jobs,)] = run_joined(alias, _WAITING, [sorted(tasks), queue, queue])
    return int(jobs)


def counted_in_words(jobs: int) -> str:
    return str(jobs) if jobs <= MOST_COUNTED else f"{MOST_COUNTED}+"
