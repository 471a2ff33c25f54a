"""Duties: periodic work that one watchdog of the fleet does in each interval.

Every watchdog asks for the duties that are due, and the first one gets them. There is no leader. If that watchdog dies,
another one takes the duty in the next interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from ..capability import assembled, installed
from ..gates import may_shut_tasks
from .job_queries import SERVER_CLOCK, ServerClock
from .lane_queries import ARE_SET_ASIDE
from .transactions import Table, TableManager, run_alone

LONG_OVERDUE = 4  # intervals after which no watchdog seems able to take a duty

# If ``taken_at`` is in the future, the server's clock was set back after it was written, and the duty counts as due.
# The statement may have waited for the table, so it compares with clock_timestamp().
_WAS_LATELY = """duty.taken_at BETWEEN
        clock_timestamp() - wanted.seconds * interval '1 second' AND clock_timestamp() + interval '1 second'"""

SET_ASIDE = "set aside"  # jobs are set aside, or may have to be


@assembled
def _take_sql() -> str:
    """Return the statement. Other watchdogs skip a locked row. The condition is checked again under the lock."""
    asked = {SET_ASIDE: f"{may_shut_tasks()} OR {ARE_SET_ASIDE}"}
    for one in installed():  # a duty without work sends no statement
        asked |= {one.name: one.exists} if one.exists else {}
        asked |= {step.name: step.exists for step in one.sweeps if step.exists}
    with_work = ", ".join(f"CASE WHEN {condition} THEN '{name}' END" for name, condition in asked.items())
    return f"""
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
    pg_catalog.array_remove(ARRAY[{with_work}], NULL)
FROM server
"""  # noqa: S608 - made of constants


# The first time that a duty is taken.
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
    """The duties that a watchdog has to do now, and the server's clock."""

    clock: ServerClock
    taken: frozenset[str]
    unfinished: frozenset[str]  # taken before, and not completed
    overdue: frozenset[str]  # not taken for a long time: a transaction may have locked the row
    with_work: frozenset[str] = frozenset()  # capabilities in use, and steps that have work


class DutyManager(TableManager[Table]):
    def take(self, every: Mapping[str, float]) -> TakenDuties:
        """Take the duties that no watchdog has taken for the given seconds."""
        names = sorted(every)
        [row] = run_alone(self.write_alias, _take_sql(), [names, [every[name] for name in names]])
        started_at, up_for, taken, new, *lists, with_work = row
        if new:
            taken += [name for (name,) in run_alone(self.write_alias, _TAKE_NEW, [sorted(new)])]
        unfinished, overdue = map(frozenset, lists)
        clock = ServerClock(started_at, up_for)
        return TakenDuties(clock, frozenset(taken), unfinished, overdue - frozenset(taken), frozenset(with_work))

    def done(self, names: Collection[str]) -> None:
        """Note that these duties were completed."""
        run_alone(self.write_alias, _DONE, [sorted(names)])
