"""Pauses as users see them: their end, user and reason, and how many jobs wait."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any, NamedTuple

from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.lane_queries import IS_SET_ASIDE
from pulse_django.queue.database.read_only import read_only
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.lane_keys import key_of, limiter_of

from .statements import IS_IN_FORCE, IS_OF_KEY, IS_OF_QUEUE, IS_OF_TASK

MOST_LISTED = 1_000
MOST_COUNTED = 1_000  # jobs of each task

_PAUSES = f"""
SELECT
    paused.task, paused.queue, paused.lane_key, paused.paused_at, paused.paused_until, paused.reason, paused.paused_by,
    aside.jobs
FROM (
    SELECT
        task::text AS task, queue::text AS queue, lane_key::text AS lane_key, paused_at, paused_until, reason,
        paused_by
    FROM pulse_django_pause
    WHERE {{which}} AND {IS_IN_FORCE}
    ORDER BY lane_key, task, queue
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
ORDER BY paused.lane_key COLLATE "C", paused.task COLLATE "C", paused.queue COLLATE "C"
"""  # noqa: S608 - made of constants
_OF_LIMIT = f"{IS_OF_KEY} AND (%(name)s::text IS NULL OR pg_catalog.split_part(lane_key::text, ':', 1) = %(name)s)"

# Without an index, because a pause is rare, and jobs far behind in the queue are counted, too.
_WAITING = f"""
SELECT count(*) FROM (
    SELECT 1 FROM pulse_django_job_hot
    WHERE {IS_CLAIMABLE} AND task::text = ANY (%s::text[]) AND (%s::text IS NULL OR queue::text = %s::text)
    LIMIT {MOST_COUNTED + 1}
) AS counted
"""  # noqa: S608 - made of constants


class PauseFacts(NamedTuple):
    """A paused queue, task, task in one queue, or key of a limit or a share."""

    task: str
    queue: str
    lane_key: str
    paused_at: datetime
    paused_until: datetime | None  # None: until it is resumed
    reason: str
    paused_by: str
    set_aside: int  # waiting jobs of the task that watchdogs have found

    @property
    def waiting(self) -> str:
        """The number of jobs that are known to wait, as text."""
        return counted_in_words(self.set_aside)

    @property
    def limit(self) -> str:
        return limiter_of(self.lane_key)

    @property
    def key(self) -> str:
        return key_of(self.lane_key) or ""

    def in_words(self) -> str:
        until = "until it is resumed" if self.paused_until is None else f"until {self.paused_until:%Y-%m-%d %H:%M:%S%z}"
        by = f" by {self.paused_by}" if self.paused_by else ""
        return f"{self._subject}: paused {until}{by}: {self.reason or 'no reason given'}"

    @property
    def _subject(self) -> str:
        if self.lane_key:
            return f"key {self.key} of {self.limit}" if self.limit else f"share {self.key}"
        if not self.task:
            return f"queue {self.queue}"
        return f"task {self.task} in queue {self.queue}" if self.queue else f"task {self.task}"

    def as_json(self) -> dict[str, Any]:
        until = None if self.paused_until is None else self.paused_until.isoformat()
        said = {
            "paused_at": self.paused_at.isoformat(), "paused_until": until,
            "reason": self.reason, "paused_by": self.paused_by,
        }  # fmt: skip
        if self.lane_key:
            return {"limit": self.limit, "key": self.key} | said
        if not self.task:
            return {"queue": self.queue} | said
        aside = {"set_aside": min(self.set_aside, MOST_COUNTED), "is_more": self.set_aside > MOST_COUNTED}
        return {"task": self.task, "queue": self.queue or None} | said | aside


def paused_tasks(alias: str) -> list[PauseFacts]:
    """Return the paused tasks. A task that is paused in several queues occurs several times."""
    return _read(alias, IS_OF_TASK)


def paused_queues(alias: str, queue: str) -> list[PauseFacts]:
    """Return the pause of a queue, if there is one."""
    return _read(alias, f"{IS_OF_QUEUE} AND queue::text = %(name)s", queue)


def paused_keys(alias: str, limit: str | None = None) -> list[PauseFacts]:
    """Return the paused keys: of all limits and shares, of one limit, or, for an empty name, of shares."""
    return _read(alias, _OF_LIMIT, limit)


def _read(alias: str, which: str, name: str | None = None) -> list[PauseFacts]:
    with read_only(alias):
        return [PauseFacts(*row) for row in run_joined(alias, _PAUSES.format(which=which), {"name": name})]


def waiting_jobs(alias: str, tasks: Collection[str], queue: str | None) -> int:
    """Count the jobs that a pause of these names stops: at most one more than ``MOST_COUNTED``."""
    with read_only(alias):
        [(jobs,)] = run_joined(alias, _WAITING, [sorted(tasks), queue, queue])
    return int(jobs)


def counted_in_words(jobs: int) -> str:
    return str(jobs) if jobs <= MOST_COUNTED else f"{MOST_COUNTED}+"
