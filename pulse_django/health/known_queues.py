"""Queues without waiting or running jobs that are shown: they have dead letters, or had jobs recently."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pulse_django.metrics.history import RECENT
from pulse_django.metrics.spans import KNOWN_FOR, MOST_NAMES
from pulse_django.metrics.traffic import MINUTE, TEN_MINUTES, TWO_HOURS
from pulse_django.queue.database.sql_functions import loose_scan
from pulse_django.queue.words.counters import OTHER, TrafficKind

MOST_DEAD = 1_000  # dead letters of one queue that are counted

_DEAD = loose_scan(
    "dead",
    "queue",
    where="status::text = 'DEAD_LETTERED'",
    order="queue",
    following=("queue::text > dead.queue::text",),
    most=str(MOST_NAMES),
)

_EARLIER = f"""
earlier AS (
    SELECT DISTINCT traffic.name::text AS name
    FROM pg_catalog.unnest(ARRAY[{MINUTE}, {TEN_MINUTES}, {TWO_HOURS}]) AS level (length)
    CROSS JOIN LATERAL (
        SELECT name FROM pulse_django_traffic
        WHERE kind::text = '{TrafficKind.QUEUE}' AND length = level.length
            AND began_at > statement_timestamp() - interval '{KNOWN_FOR.days} days'
            AND began_at <= statement_timestamp()
        OFFSET 0  -- each length is a range of the key
    ) AS traffic
    WHERE traffic.name::text <> '{OTHER}'
)"""  # noqa: S608 - made of constants

# For a query that needs only the names.
KNOWN_NAMES = f"""(
{_DEAD},
{_EARLIER}
SELECT queue::text FROM dead UNION SELECT name FROM earlier
)"""  # noqa: S608 - made of constants

_KNOWN = f"""
{_DEAD},
{_EARLIER},
counted AS (
    SELECT dead.queue::text AS name, (
        SELECT count(*) FROM (
            SELECT 1 FROM pulse_django_job_hot
            WHERE status::text = 'DEAD_LETTERED' AND queue::text = dead.queue::text
            ORDER BY queue, finished_at
            LIMIT {MOST_DEAD} + 1
        ) AS one
    ) AS letters
    FROM dead
),
recorded AS (
    SELECT count(*) AS minutes, pg_catalog.min(minute) AS since
    FROM pulse_django_minute
    WHERE minute > statement_timestamp() - %s::interval AND minute <= statement_timestamp()
),
recent AS (
    SELECT
        name::text, pg_catalog.sum(enqueued) AS enqueued, pg_catalog.sum(started) AS started,
        pg_catalog.sum(succeeded) AS succeeded, pg_catalog.sum(failed) AS failed, pg_catalog.sum(died) AS died
    FROM pulse_django_traffic
    WHERE kind::text = '{TrafficKind.QUEUE}' AND length = {MINUTE} AND began_at >= (SELECT since FROM recorded)
        AND began_at <= statement_timestamp() AND name::text <> '{OTHER}'
    GROUP BY name
),
known AS (
    SELECT name FROM counted UNION SELECT name FROM recent UNION SELECT name FROM earlier
)
SELECT
    known.name, COALESCE(counted.letters, 0), recorded.minutes, recent.enqueued, recent.started, recent.succeeded,
    recent.failed, recent.died
FROM known
CROSS JOIN recorded
LEFT JOIN counted USING (name)
LEFT JOIN recent USING (name)
ORDER BY COALESCE(counted.letters, 0) DESC, known.name
LIMIT {MOST_NAMES}
"""  # noqa: S608 - made of constants


@dataclass(frozen=True, slots=True)
class PerMinute:
    """Recent numbers of jobs per minute."""

    enqueued: float = 0.0
    started: float = 0.0
    succeeded: float = 0.0
    failed: float = 0.0
    died: float = 0.0


# For ``read_message``, together with other queries.
KNOWN_QUEUES: tuple[str, list[Any]] = (_KNOWN, [RECENT])


def known_queues(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[str, Any]]:
    """Return the facts of each queue from the rows of ``KNOWN_QUEUES``. Without minutes, rates are None."""
    return {
        name: {
            "dead": min(dead, MOST_DEAD),
            "is_more_dead": dead > MOST_DEAD,
            "per_minute": PerMinute(*((number or 0) / minutes for number in counted)) if minutes else None,
        }
        for name, dead, minutes, *counted in rows
    }
