"""The statistics of each minute: one small row, written by the first watchdog that comes.

Workers write nothing for it: ids of jobs and of attempts rise with the time at which they were written, so a minute is
a range of ids. What a transaction enqueued in one minute and committed in a later one is missing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from django.db import models, router

from pulse_django.words import counters
from pulse_django.words.counters import Counters

from . import releases, traffic
from .job_queries import depths
from .json_columns import read
from .minute_counts import counted_by_workers, counted_in
from .transactions import joined, run_joined

if TYPE_CHECKING:
    from pulse_django.models import Minute  # noqa: F401 - named in the base class below

# Watchdogs look once a minute, not to the second; after a longer absence the older minutes stay unwritten.
MOST_CAUGHT_UP = 10
KEPT = timedelta(days=2)
MOST_WAITING = 1_000_000  # jobs that are counted: a fifth of a second's worth of index. Beyond it depths are too small

# Five seconds later, so that nothing of that minute is still being written. What lies in the future was written before
# the clock was set back, and says nothing about what is missing.
_UNWRITTEN = """
SELECT begin
FROM pg_catalog.generate_series(
    pg_catalog.date_trunc('minute', statement_timestamp() - interval '65 s') - %s::float8 * interval '1 min',
    pg_catalog.date_trunc('minute', statement_timestamp() - interval '65 s'),
    interval '1 min'
) AS over (begin)
WHERE begin > (
    SELECT COALESCE(pg_catalog.max(minute), '-infinity') FROM pulse_django_minute WHERE minute <= statement_timestamp()
)
ORDER BY begin
"""

_BEFORE = """
SELECT totals::text, workers::text
FROM pulse_django_minute
WHERE totals IS NOT NULL AND minute <> %s
ORDER BY minute DESC
LIMIT 1
"""

_WORKERS = "SELECT pg_catalog.concat(name, ':', boot_id), "
# What only its page reads is left out: it would stand in every minute.
_WORKERS += "(vitals - 'processes'::text - 'stuck'::text)::text FROM pulse_django_worker ORDER BY id"

_WRITE = """
INSERT INTO pulse_django_minute (minute, signs, totals, workers) VALUES (%s, %s::jsonb, %s::jsonb, %s::jsonb)
ON CONFLICT (minute) DO NOTHING
RETURNING minute
"""

_RELIEVE = """
WITH earlier AS MATERIALIZED (
    SELECT minute, signs - 'queues'::text AS signs
    FROM pulse_django_minute
    WHERE minute <> %s AND totals IS NOT NULL
    ORDER BY minute
    FOR NO KEY UPDATE
)
UPDATE pulse_django_minute AS minute
SET totals = NULL, workers = NULL, signs = earlier.signs
FROM earlier
WHERE minute.minute = earlier.minute AND minute.totals IS NOT NULL
RETURNING minute.minute
"""

_NOTE = "UPDATE pulse_django_minute SET signs = signs || %s::jsonb WHERE minute = %s RETURNING minute"

# Those of the future as well: the clock was set back, and their totals stand in the latest by now.
_FORGET = """
DELETE FROM pulse_django_minute
WHERE minute < statement_timestamp() - %s::interval OR (minute > statement_timestamp() AND totals IS NULL)
RETURNING minute
"""


class MinuteRow(models.Model):
    """The columns of a minute."""

    minute = models.DateTimeField(primary_key=True)  # its beginning
    signs = models.JSONField()  # what was counted in it, and how things stood
    # Of the latest only: what was counted since the first minute, and what each worker had counted of all its life.
    totals = models.JSONField(null=True, blank=True)
    workers = models.JSONField(null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return self.minute.isoformat()


class MinuteManager(models.Manager["Minute"]):
    def unwritten(self) -> list[datetime]:
        """Return the minutes that are over and not written yet, of the last few."""
        return [minute for (minute,) in run_joined(self._alias, _UNWRITTEN, [MOST_CAUGHT_UP - 1])]

    def write(self, minute: datetime, *, is_latest: bool = True) -> bool:
        """Write what happened in that minute; if it is the latest, how things stand. Return whether we were first."""
        totals, before = self._before(minute)
        found, workers = counted_in(self._alias, minute), before
        counted = found.signs
        if is_latest:
            workers = self._workers()
            counted = counters.added(counted, counted_by_workers(workers, before))
        totals = counters.added(totals, counted)
        signs: dict[str, Any] = counters.added({}, counted)
        if is_latest:
            signs |= {"queues": self._depths()}
        values = [json.dumps(value) for value in (signs, totals, workers)]
        with joined(self._alias):
            is_first = bool(run_joined(self._alias, _WRITE, [minute, *values]))
            if is_first:
                run_joined(self._alias, _RELIEVE, [minute])
                traffic.write(self._alias, minute, found.traffic)
                releases.note_release(self._alias)
        return is_first

    def note(self, minute: datetime, signs: Mapping[str, Any]) -> None:
        """Add to what a minute says."""
        run_joined(self._alias, _NOTE, [json.dumps(signs), minute])

    def forget(self, older_than: timedelta = KEPT) -> int:
        """Delete minutes that are too old for every reader, but for the totals."""
        traffic.forget(self._alias)
        releases.forget(self._alias)
        return len(run_joined(self._alias, _FORGET, [older_than]))

    def _before(self, minute: datetime) -> tuple[Counters, dict[str, Any]]:
        rows = run_joined(self._alias, _BEFORE, [minute])
        return (json.loads(rows[0][0]), json.loads(rows[0][1] or "{}")) if rows else ({}, {})

    def _workers(self) -> dict[str, Any]:
        said = {key: read(vitals) for key, vitals in run_joined(self._alias, _WORKERS, [])}
        return {key: vitals for key, vitals in said.items() if isinstance(vitals, dict)}

    def _depths(self) -> dict[str, list[Any]]:
        waiting = depths(self._alias, MOST_WAITING)
        return {depth.queue: [depth.due, depth.later, depth.overdue] for depth in waiting}

    @property
    def _alias(self) -> str:
        return self._db or router.db_for_write(self.model)
