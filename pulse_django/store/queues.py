"""Pause a queue, with a reason and an optional end, and resume it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import models, router
from django.db.models import Q

from pulse_django.words.job_options import check_queue_name
from pulse_django.words.limiting import IN_QUEUE, OF_TASK
from pulse_django.words.limits import MAX_DELAY, MAX_QUEUE_NAME
from pulse_django.words.payloads import clean_text

from .constraints import IS_CLAIMABLE
from .sql_functions import ShortText, instants_of, loose_scan
from .transactions import run_joined

if TYPE_CHECKING:
    from pulse_django.models import Queue  # noqa: F401 - named in the base class below


MAX_REASON = 2_000

_PAUSE = """
INSERT INTO pulse_django_queue AS queue (name, paused_at, paused_until, pause_reason)
VALUES (%s, clock_timestamp(), clock_timestamp() + %s::interval, %s)
ON CONFLICT (name) DO UPDATE SET
    paused_at = CASE
        WHEN queue.paused_until <= excluded.paused_at THEN excluded.paused_at  -- the earlier pause had ended
        ELSE COALESCE(queue.paused_at, excluded.paused_at)
    END,
    paused_until = excluded.paused_until,
    pause_reason = excluded.pause_reason
WHERE %s::boolean OR %s::timestamptz IS NOT DISTINCT FROM
    CASE WHEN queue.paused_until <= excluded.paused_at THEN NULL ELSE queue.paused_at END
RETURNING queue.id
"""

_RESUME = """
UPDATE pulse_django_queue
SET paused_at = NULL, paused_until = NULL, pause_reason = ''
WHERE name::text = %s AND paused_at IS NOT NULL AND (%s::boolean OR paused_at = %s::timestamptz)
RETURNING id
"""


_RESUME_ENDED = """
UPDATE pulse_django_queue
SET paused_at = NULL, paused_until = NULL, pause_reason = ''
WHERE paused_at IS NOT NULL AND paused_until <= statement_timestamp()
RETURNING name
"""


class Pause(NamedTuple):
    """The pause that a user saw and decides about."""

    paused_at: datetime | None  # None: the queue was not paused


def _params_of(seen: Pause | None) -> list[Any]:
    """Return whether any pause will do, and if not, which one."""
    return [True, None] if seen is None else [False, seen.paused_at]


class QueueRow(models.Model):
    """The columns of a queue."""

    id = models.BigAutoField(primary_key=True)
    name = ShortText(max_length=MAX_QUEUE_NAME, unique=True)
    paused_at = models.DateTimeField(null=True, blank=True)
    paused_until = models.DateTimeField(null=True, blank=True)  # NULL: until it is resumed
    pause_reason = models.TextField(blank=True, default="", db_default="")

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.name


QUEUE_CONSTRAINTS: list[models.BaseConstraint] = [
    models.CheckConstraint(
        name="pulse_queue_pause_has_a_start",
        condition=Q(paused_at__isnull=False) | Q(paused_until__isnull=True, pause_reason=""),
    ),
    instants_of("queue", "paused_at", "paused_until"),
]


class QueueManager(models.Manager["Queue"]):
    def pause(
        self, name: str, *, reason: str = "", lasting: timedelta | None = None, seen: Pause | None = None
    ) -> bool:
        """Let no worker claim from the queue any more; what is running runs on. Pausing again renews reason and end.

        With ``seen``, only if the queue is still paused, or not, as it was then. Return whether it was done.
        """
        check_queue_name(name)
        if lasting is not None and not timedelta() < lasting <= MAX_DELAY:
            raise ValueError(f"lasting: {lasting} must be positive and at most {MAX_DELAY.days} days")
        params = [name, lasting, clean_text(reason, MAX_REASON), *_params_of(seen)]
        return bool(run_joined(self._alias, _PAUSE, params))

    def resume(self, name: str, *, seen: Pause | None = None) -> bool:
        """Let workers claim from the queue again. Return whether it was paused: in the pause that was seen, if any."""
        check_queue_name(name)
        return bool(run_joined(self._alias, _RESUME, [name, *_params_of(seen)]))

    def resume_ended(self) -> list[str]:
        """Clear pauses that have ended. Claims do not wait for it; it is for those who read the table."""
        return sorted(name for (name,) in run_joined(self._alias, _RESUME_ENDED, []))

    @property
    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)


# Which tasks are paused now: what claims, looks and conditions leave out.
#
# A paused task is a row among the paused keys, spelt ``task=<name>``, or ``task=<name>``, a line feed and a queue if
# it is paused in that queue alone. Those rows are one range of the primary key.


_BEYOND = chr(ord(OF_TASK[-1]) + 1)

# Of a row of pulse_django_pausedkey: whether it is a task's.
IS_OF_TASK = f"lane_key::text >= '{OF_TASK}' AND lane_key::text < '{OF_TASK[:-1]}{_BEYOND}'"
IS_IN_FORCE = "(paused_until IS NULL OR paused_until > statement_timestamp())"

# Of a job: whether it is set aside.
IS_SET_ASIDE = f"{IS_CLAIMABLE} AND ready IS NULL"
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
