"""Which tasks are paused now: what claims, looks and conditions leave out.

A paused task is a row among the paused keys, spelt ``task=<name>``, or ``task=<name>``, a line feed and a queue if it
is paused in that queue alone. Those rows are one range of the primary key.
"""

from __future__ import annotations

from pulse_django.words.limiting import IN_QUEUE, OF_TASK

from .job_conditions import CLAIMABLE
from .loose_scan import loose_scan

_BEYOND = chr(ord(OF_TASK[-1]) + 1)

# Of a row of pulse_django_pausedkey: whether it is a task's.
IS_OF_TASK = f"lane_key::text >= '{OF_TASK}' AND lane_key::text < '{OF_TASK[:-1]}{_BEYOND}'"
IS_IN_FORCE = "(paused_until IS NULL OR paused_until > statement_timestamp())"

# Of a job: whether it is set aside.
IS_SET_ASIDE = f"{CLAIMABLE} AND ready IS NULL"
ARE_SET_ASIDE = f"EXISTS (SELECT 1 FROM pulse_django_job_hot WHERE {IS_SET_ASIDE})"  # noqa: S608 - made of constants

# By task and queue, so that a pause which goes on costs a probe, however many of its jobs are set aside.
TASKS_SET_ASIDE = loose_scan(
    "met",
    "task, queue",
    where=IS_SET_ASIDE,
    order="task, queue",
    following=("task::text = met.task::text AND queue::text > met.queue::text", "task::text > met.task::text"),
)

# One that has ended counts until a watchdog forgets it.
NONE_IS_PAUSED = f"NOT EXISTS (SELECT 1 FROM pulse_django_pausedkey WHERE {IS_OF_TASK})"  # noqa: S608 - made of constants

# Their names, some with a queue, as an array: a statement reads it once.
_NAME = f"pg_catalog.substr(lane_key::text, {len(OF_TASK) + 1})"
PAUSED_TASKS = f"ARRAY(SELECT {_NAME} FROM pulse_django_pausedkey WHERE {IS_OF_TASK} AND {IS_IN_FORCE})"  # noqa: S608 - made of constants

# Of a row of pulse_django_pausedkey: the task, and the queue in which it is paused; empty: in all.
_LINE_FEED = f"pg_catalog.chr({ord(IN_QUEUE)})"
TASK_OF_PAUSE = f"pg_catalog.split_part({_NAME}, {_LINE_FEED}, 1)"
QUEUE_OF_PAUSE = f"pg_catalog.split_part({_NAME}, {_LINE_FEED}, 2)"


def is_among(paused: str, task: str, queue: str) -> str:
    """Return the SQL that says whether a task is paused in a queue, by an array like ``PAUSED_TASKS``.

    Of the column ``task`` the planner knows which names are frequent. With one task in the table it would expect that
    none of its jobs can start, and read and sort whole lanes. What a function returns it knows nothing of.
    """
    names = f"ARRAY[pg_catalog.concat({task}), pg_catalog.concat({task}, {_LINE_FEED}, {queue})]"
    return f"{names} OPERATOR(pg_catalog.&&) {paused}"


def is_not_paused(row: str = "") -> str:
    """Return the SQL that says whether the task of a job is not paused. ``row`` goes before the columns: ``job.``."""
    return f"NOT {is_among(PAUSED_TASKS, f'{row}task', f'{row}queue')}"


# Of a lane whose head is not set aside yet. With more, what is behind is asked for when it is.
_MOST_STEPPED_OVER = 1_000


def first_that_can_start(in_lane: str) -> str:
    """Return a query for the instant at which the first job of a lane is due whose task is not paused."""
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
