"""Pauses of queues, tasks, tasks in one queue, and keys of limits and shares. None of their jobs starts.

Each pause is a row. The row of a task names a queue if the task is paused only in that queue.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.utils.translation import gettext_lazy as _

from pulse_django.exceptions import InvalidJob
from pulse_django.queue.capability import Gate
from pulse_django.queue.database.transactions import Table, TableManager, run_joined
from pulse_django.queue.words.bounds import MAX_LANE_KEY, MAX_STORED_REASON, MAX_USER
from pulse_django.queue.words.durations import Seconds, as_timedelta
from pulse_django.queue.words.job_options import QUEUE_NAME, TASK_NAME
from pulse_django.queue.words.lane_keys import key_of
from pulse_django.queue.words.options import Duration, Note
from pulse_django.queue.words.payloads import clean_text

# Keep a later end, because another user relies on it.
_PAUSE = """
INSERT INTO pulse_django_pause AS pause (task, queue, lane_key, paused_until, reason, paused_by)
SELECT
    task, %(queue)s, %(lane_key)s, clock_timestamp() + %(seconds)s::float8 * interval '1 second', %(reason)s, %(by)s
FROM pg_catalog.unnest(%(tasks)s::text[]) AS wanted (task)
ON CONFLICT (lane_key, task, queue) DO UPDATE SET
    paused_at = CASE WHEN pause.paused_until <= excluded.paused_at THEN excluded.paused_at ELSE pause.paused_at END,
    paused_until = excluded.paused_until, reason = excluded.reason, paused_by = excluded.paused_by
WHERE pause.paused_until IS NOT NULL
    AND (excluded.paused_until IS NULL OR pause.paused_until < excluded.paused_until)
    AND (NOT %(anew)s::boolean OR pause.paused_until <= excluded.paused_at)
RETURNING id
"""
_RESUME = """
DELETE FROM pulse_django_pause
WHERE lane_key::text = %(lane_key)s AND task::text = ANY (%(tasks)s::text[])
    AND (%(queue)s::text IS NULL OR queue::text = %(queue)s)
    AND (%(seen)s::timestamptz IS NULL OR paused_at = %(seen)s)
RETURNING id
"""
_FORGET = "DELETE FROM pulse_django_pause WHERE paused_until <= statement_timestamp() RETURNING task, queue, lane_key"

_LANE_KEY = Note(MAX_LANE_KEY)


class PauseManager(TableManager[Table]):
    """``Pause.objects``: pause tasks, a queue, tasks in one queue, or a key, and resume them.

    ``pausing`` knows the other names of a task.
    """

    def pause(
        self,
        *tasks: str,
        queue: str | None = None,
        lane_key: str | None = None,
        duration: Seconds | None = None,
        reason: str = "",
        by: str = "",
        anew: bool = False,
    ) -> bool:
        """Pause them for some time or until they are resumed, from the next claim on. Running jobs continue.

        Return whether one was not already paused for longer. ``anew``: do it only if it is not paused at all.
        """
        subject = _subject(tasks, queue, lane_key)
        lasts = as_timedelta(duration)
        if lasts is not None:
            Duration(or_zero=lane_key is not None).check("duration", lasts)
        values = subject | {
            "queue": subject["queue"] or "",
            "seconds": None if lasts is None else lasts.total_seconds(),
            "reason": clean_text(reason, MAX_STORED_REASON),
            "by": clean_text(by, MAX_USER),
            "anew": bool(anew),
        }
        return bool(run_joined(self.write_alias, _PAUSE, values))

    def resume(
        self, *tasks: str, queue: str | None = None, lane_key: str | None = None, seen: datetime | None = None
    ) -> bool:
        """Resume them. Return whether one was paused.

        Tasks without a queue are resumed in all queues. ``seen``: only the pause that began then.
        """
        if seen is not None and (not isinstance(seen, datetime) or seen.utcoffset() is None):
            raise InvalidJob(f"seen: {seen!r} is not an aware datetime")
        return bool(run_joined(self.write_alias, _RESUME, _subject(tasks, queue, lane_key) | {"seen": seen}))

    def forget_ended(self) -> list[tuple[str, str, str]]:
        """Delete expired pauses. Return the task, the queue and the key of each. Claims do not wait for it."""
        return [(task, queue, key) for task, queue, key in run_joined(self.write_alias, _FORGET, [])]


def _subject(tasks: tuple[str, ...], queue: str | None, lane_key: str | None) -> dict[str, Any]:
    """Return the columns that identify a pause."""
    for name in tasks:
        TASK_NAME.check("task", name)
    if queue is not None:
        QUEUE_NAME.check("queue", queue)
    if lane_key is not None:
        lane_key = _LANE_KEY.cleaned("lane_key", lane_key)
        if key_of(lane_key) is None:
            raise InvalidJob(f"{lane_key!r} has no key: pause the limit instead")
    if (lane_key is None) is (not tasks and queue is None):
        raise InvalidJob("Name a key, or tasks, a queue or both.")
    return {"tasks": sorted(set(tasks)) or [""], "queue": queue, "lane_key": lane_key or ""}


# Conditions on a row of pulse_django_pause: whether it is in force now, and its kind.
IS_IN_FORCE = "(paused_until IS NULL OR paused_until > statement_timestamp())"
IS_OF_QUEUE = "lane_key::text = '' AND task::text = ''"
IS_OF_TASK = "lane_key::text = '' AND task::text <> ''"
IS_OF_KEY = "lane_key::text <> ''"

# The pauses in force, except those of keys, as an array of "task, line feed, queue". No name has a line feed.
_LINE_FEED = "pg_catalog.chr(10)"
PAUSED = (
    f"ARRAY(SELECT pg_catalog.concat(task, {_LINE_FEED}, queue) FROM pulse_django_pause"  # noqa: S608 - made of constants
    f" WHERE lane_key::text = '' AND {IS_IN_FORCE})"
)


def is_not_paused(row: str, names: str = PAUSED) -> str:
    """Return the SQL that says whether the task of a job is not paused. ``row`` goes before the columns: ``job.``.

    The planner has statistics of the column ``task``. With only one task in the table, it would expect that none of
    its jobs can start, and read and sort whole lanes. It has no statistics of the result of a function.
    """
    task = f"pg_catalog.concat({row}task, {_LINE_FEED})"
    in_queue = f"pg_catalog.concat({row}task, {_LINE_FEED}, {row}queue)"
    return f"NOT ARRAY[{task}, {in_queue}] OPERATOR(pg_catalog.&&) {names}"


_NOTHING_IS = "pg_catalog.cardinality(pauses.names) = 0"


def _facts(which: str) -> str:
    """Return a query for a pause. If a task has several, return the one that lasts longest."""
    return f"""SELECT paused_until AS opens_at, reason, paused_by AS shut_by
        FROM pulse_django_pause
        WHERE {which} AND {IS_IN_FORCE}
        ORDER BY paused_until DESC NULLS FIRST
        LIMIT 1"""  # noqa: S608 - made of constants


_QUEUE_PAUSED = Gate(
    code="queue-paused",
    lane=f"({_NOTHING_IS} OR pg_catalog.concat({_LINE_FEED}, {{lane}}.queue) <> ALL (pauses.names))",
    about=("queue",),
    sentence=_("The queue %(queue)s is paused until it is resumed."),
    sentence_until=_("The queue %(queue)s is paused until %(until)s."),
    facts=_facts(f"{IS_OF_QUEUE} AND queue::text = {{lane}}.queue"),
)
_KEY_PAUSED = Gate(
    code="key-paused",
    # This looks in the index of keys instead of in the array, because ten thousand keys may be paused.
    lane=f"""COALESCE((
        SELECT false FROM pulse_django_pause
        WHERE lane_key::text = {{lane}}.key AND {IS_OF_KEY} AND {IS_IN_FORCE}
        LIMIT 1
    ), true)""",  # noqa: S608 - made of constants
    of_keys=True,
    about=("key",),
    sentence=_("The key %(key)s is paused until it is resumed."),
    sentence_until=_("The key %(key)s is paused until %(until)s."),
    facts=_facts(f"{IS_OF_KEY} AND lane_key::text = {{lane}}.key"),
)
_TASK_PAUSED = Gate(
    code="task-paused",
    job=f"({_NOTHING_IS} OR {is_not_paused('{job}.', 'pauses.names')})",
    of_tasks=True,
    may_shut=f"EXISTS (SELECT 1 FROM pulse_django_pause WHERE {IS_OF_TASK})",  # noqa: S608 - made of constants
    about=("task",),
    sentence=_("The task %(task)s is paused until it is resumed."),
    sentence_until=_("The task %(task)s is paused until %(until)s."),
    facts=_facts(f"{IS_OF_TASK} AND task::text = {{job}}.task::text AND queue::text IN ('', {{job}}.queue::text)"),
)
READS = f"SELECT {PAUSED} AS names"
GATES = (_QUEUE_PAUSED, _KEY_PAUSED, _TASK_PAUSED)


# For a lane whose first jobs are not set aside yet. If there are more, ask again when these are set aside.
_MOST_STEPPED_OVER = 1_000


def first_that_can_start(in_lane: str) -> str:
    """Return a query for the time at which the first job of a lane with a task that is not paused is due."""
    return f"""
        SELECT next_run_at
        FROM (
            SELECT id, task, queue, next_run_at
            FROM pulse_django_job_hot
            WHERE {in_lane}
            ORDER BY next_run_at, id
            LIMIT {_MOST_STEPPED_OVER}
        ) AS head
        WHERE {is_not_paused("head.")}
        ORDER BY next_run_at, id
        LIMIT 1"""  # noqa: S608 - made of constants
