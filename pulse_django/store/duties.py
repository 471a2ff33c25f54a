"""Duties: what one watchdog of the fleet does in each interval.

Every watchdog asks for the duties that are due, and the first one that asks takes them. There is no leader. If the
watchdog dies, another one takes the duty in the next interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from .job_queries import ARE_EXPIRED, ARE_UNRESOLVED, SERVER_CLOCK, ServerClock
from .pauses import ARE_SET_ASIDE, IS_OF_TASK
from .transactions import TableManager, run_alone

if TYPE_CHECKING:
    from pulse_django.models import Duty  # noqa: F401 - named in the base class below

LONG_OVERDUE = 4  # times the interval: whoever should have taken it cannot

# An instant in the future was written before the server's clock was set back. Nobody knows how long ago that was. The
# statement may have waited for the table, so it looks at the clock when it compares.
_WAS_LATELY = """duty.taken_at BETWEEN
        clock_timestamp() - wanted.seconds * interval '1 second' AND clock_timestamp() + interval '1 second'"""

# Those who come second in the same moment skip the locked row. Under the lock the condition is looked at again.
_TAKE = f"""
WITH wanted (name, seconds) AS (
    SELECT * FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::float8[])) AS wanted (name, seconds)
),
due AS MATERIALIZED (
    SELECT duty.name, duty.taken_at, duty.done_at
    FROM pulse_django_duty AS duty
    JOIN wanted ON duty.name::text = wanted.name
    WHERE NOT ({_WAS_LATELY})
    ORDER BY duty.name
    FOR NO KEY UPDATE OF duty SKIP LOCKED
),
taking AS MATERIALIZED (
    SELECT name, clock_timestamp() AS now FROM due
),
taken AS (
    UPDATE pulse_django_duty AS duty
    SET taken_at = taking.now
    FROM taking
    WHERE duty.name::text = taking.name::text
    RETURNING duty.name
),
server AS ({SERVER_CLOCK})
SELECT
    server.*,
    ARRAY(SELECT name::text FROM taken),
    ARRAY(
        SELECT name FROM wanted
        WHERE NOT EXISTS (SELECT 1 FROM pulse_django_duty AS duty WHERE duty.name::text = wanted.name)
    ),
    ARRAY(SELECT name::text FROM pulse_django_duty WHERE done_at < taken_at),
    ARRAY(
        SELECT duty.name::text
        FROM pulse_django_duty AS duty
        JOIN wanted ON duty.name::text = wanted.name
        WHERE duty.taken_at < clock_timestamp() - wanted.seconds * interval '{LONG_OVERDUE} seconds'
    ),
    EXISTS (SELECT 1 FROM pulse_django_schedule),
    EXISTS (SELECT 1 FROM pulse_django_limiter),
    {ARE_EXPIRED},
    EXISTS (SELECT 1 FROM pulse_django_pause WHERE {IS_OF_TASK}) OR {ARE_SET_ASIDE},
    {ARE_UNRESOLVED},
    EXISTS (SELECT 1 FROM pulse_django_batch WHERE paused_at IS NOT NULL AND closed_at IS NULL),
    EXISTS (SELECT 1 FROM pulse_django_batch) OR EXISTS (SELECT 1 FROM pulse_django_dependency)
        OR EXISTS (SELECT 1 FROM pulse_django_step) OR EXISTS (SELECT 1 FROM pulse_django_event)
FROM server
"""  # noqa: S608 - made of constants

# The first time in the life of these tables.
_TAKE_NEW = """
INSERT INTO pulse_django_duty (name, taken_at, done_at)
SELECT name, clock_timestamp(), clock_timestamp() FROM pg_catalog.unnest(%s::text[]) AS wanted (name)
ON CONFLICT (name) DO NOTHING
RETURNING name
"""

_DONE = """
WITH taken AS MATERIALIZED (
    SELECT name FROM pulse_django_duty WHERE name::text = ANY (%s::text[]) ORDER BY name FOR NO KEY UPDATE
),
done AS MATERIALIZED (
    SELECT name, clock_timestamp() AS now FROM taken
),
written AS (
    UPDATE pulse_django_duty AS duty
    SET done_at = done.now
    FROM done
    WHERE duty.name::text = done.name::text
    RETURNING duty.name
)
SELECT name FROM written
"""


class TakenDuties(NamedTuple):
    """What a watchdog is to do now, and the server's clock."""

    clock: ServerClock
    taken: frozenset[str]
    unfinished: frozenset[str]  # that were taken before, and not done to the end
    overdue: frozenset[str]  # that nobody could take for long: a transaction has locked the row
    # Asked here, so that a fleet without schedules, limits, expired jobs, paused tasks or workflows sends no statement
    # for them.
    has_schedules: bool = False
    has_limits: bool = False
    has_expired: bool = False
    has_paused_tasks: bool = False  # or jobs that are set aside
    has_unresolved: bool = False  # or events that did not come in time
    has_paused_batches: bool = False
    has_workflows: bool = False  # or batches, steps or events


class DutyManager(TableManager["Duty"]):
    def take(self, every: Mapping[str, float]) -> TakenDuties:
        """Take the duties that nobody did for so many seconds."""
        names = sorted(every)
        [row] = run_alone(self.write_alias, _TAKE, [names, [every[name] for name in names]])
        started_at, up_for, taken, new, *lists = row[:6]
        if new:
            taken += [name for (name,) in run_alone(self.write_alias, _TAKE_NEW, [sorted(new)])]
        unfinished, overdue = map(frozenset, lists)
        clock, there_are = ServerClock(started_at, up_for), row[6:]
        return TakenDuties(clock, frozenset(taken), unfinished, overdue - frozenset(taken), *there_are)

    def done(self, names: Collection[str]) -> None:
        """Note that these were done to the end."""
        run_alone(self.write_alias, _DONE, [sorted(names)])
