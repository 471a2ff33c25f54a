"""What one watchdog of a fleet does in an interval: each of them asks, and one of them gets the duty.

There is no leader. Whoever asks first after the interval does the work, and if it dies meanwhile, the next interval has
another. So a fleet of a thousand sweeps no more often than one worker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from django.db import models, router

from .job_queries import SERVER_CLOCK, ServerClock
from .transactions import run_alone

if TYPE_CHECKING:
    from pulse_django.models import Duty  # noqa: F401 - named in the base class below

# An instant in the future was written before the server's clock was set back: nobody knows how long ago that was.
_WAS_LATELY = """duty.done_at BETWEEN
        statement_timestamp() - wanted.seconds * interval '1 second' AND statement_timestamp() + interval '1 second'"""

# Those who come second in the same moment skip the locked row. Under the lock the condition is looked at again.
_TAKE = f"""
WITH wanted (name, seconds) AS (
    SELECT * FROM ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::float8[])) AS wanted (name, seconds)
),
due AS MATERIALIZED (
    SELECT duty.name
    FROM pulse_django_duty AS duty
    JOIN wanted ON duty.name::text = wanted.name
    WHERE NOT ({_WAS_LATELY})
    ORDER BY duty.name
    FOR NO KEY UPDATE OF duty SKIP LOCKED
),
taken AS (
    UPDATE pulse_django_duty AS duty
    SET done_at = clock_timestamp()
    FROM due
    WHERE duty.name::text = due.name::text
    RETURNING duty.name
),
first AS (
    INSERT INTO pulse_django_duty (name, done_at)
    SELECT name, clock_timestamp() FROM wanted
    WHERE NOT EXISTS (SELECT FROM pulse_django_duty AS duty WHERE duty.name::text = wanted.name)
    ON CONFLICT (name) DO NOTHING
    RETURNING name
),
server AS ({SERVER_CLOCK})
SELECT server.*, ARRAY(SELECT name::text FROM taken UNION ALL SELECT name::text FROM first) FROM server
"""  # noqa: S608 - made of constants


class Turn(NamedTuple):
    """What a watchdog is to do now, and the server's clock."""

    clock: ServerClock
    duties: frozenset[str]


class DutyManager(models.Manager["Duty"]):
    def take(self, every: Mapping[str, float]) -> Turn:
        """Take the duties that nobody did for so many seconds."""
        names = sorted(every)
        [(started_at, up_for, taken)] = run_alone(self._alias, _TAKE, [names, [every[name] for name in names]])
        return Turn(ServerClock(started_at, up_for), frozenset(taken))

    @property
    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)
