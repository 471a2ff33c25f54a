"""The traffic of each task and queue, kept for two weeks: a row for each span of time with activity.

A row is written once and never changed. At the end of a longer span, minutes are added up to ten minutes, these to two
hours, and these to days. Each length is kept while a page shows it, so that two weeks of 200 tasks take tens of
megabytes.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.database.transactions import run_joined
from pulse_django.queue.words.counters import Durations, TrafficCounts, TrafficKind, capped

MINUTE, TEN_MINUTES, TWO_HOURS, DAY = 1, 10, 120, 1440  # the lengths of spans, in minutes
FINER = {TEN_MINUTES: MINUTE, TWO_HOURS: TEN_MINUTES, DAY: TWO_HOURS}
WINDOW = timedelta(days=14)
# A little longer than pages and the next length need it: all watchdogs may be stopped for a while.
KEPT = {
    MINUTE: timedelta(minutes=80),
    TEN_MINUTES: timedelta(hours=26),
    TWO_HOURS: timedelta(days=15),
    DAY: timedelta(days=16),
}

Key = tuple[TrafficKind, str]

COLUMNS = "enqueued, started, succeeded, failed, died, ran_seconds, ran, waited_seconds, waited"

_WRITE = f"""
INSERT INTO pulse_django_traffic (kind, length, began_at, name, {COLUMNS})
SELECT kind, %s, %s, name, {COLUMNS}
FROM pg_catalog.json_to_recordset(%s::json) AS said (
    kind text, name text, enqueued int, started int, succeeded int, failed int, died int, ran_seconds float8,
    ran int[], waited_seconds float8, waited int[]
)
ON CONFLICT (kind, length, began_at, name) DO NOTHING
RETURNING name
"""  # noqa: S608 - made of constants

# Spans that are over but not written, and have shorter spans. Those of a day begin at midnight in UTC.
_OVER = """
SELECT DISTINCT pg_catalog.date_bin(%(length)s::float8 * interval '1 min', began_at, 'epoch'::timestamptz)
FROM pulse_django_traffic
WHERE kind::text = ANY (%(kinds)s::text[]) AND length = %(finer)s
    AND began_at < pg_catalog.date_bin(
        %(length)s::float8 * interval '1 min', %(until)s::timestamptz, 'epoch'::timestamptz
    )
    AND began_at >= COALESCE(
        (
            SELECT pg_catalog.max(began_at) FROM pulse_django_traffic
            WHERE kind::text = ANY (%(kinds)s::text[]) AND length = %(length)s AND began_at <= %(until)s::timestamptz
        ) + %(length)s::float8 * interval '1 min',
        '-infinity'::timestamptz
    )
ORDER BY 1
"""

_READ = f"""
SELECT kind, name, began_at, length, {COLUMNS}
FROM pulse_django_traffic
WHERE kind::text = ANY (%s::text[]) AND length = %s AND began_at >= %s AND began_at < %s
"""  # noqa: S608 - made of constants

_FORGET = """
DELETE FROM pulse_django_traffic
WHERE kind::text = ANY (%s::text[]) AND length = %s
    AND (began_at < statement_timestamp() - %s::interval OR began_at > statement_timestamp() + interval '1 h')
RETURNING name
"""


class TrafficSpan(NamedTuple):
    kind: TrafficKind
    name: str
    began_at: datetime
    length: int  # in minutes
    counts: TrafficCounts


def write(alias: str, minute: datetime, counts: Mapping[Key, TrafficCounts]) -> None:
    """Write the counts of a minute, and the longer spans that end with it.

    Call it in the transaction that writes the minute, so that it runs once.
    """
    _write(alias, MINUTE, minute, counts)
    until = minute + timedelta(minutes=1)
    for length, finer in FINER.items():
        asked = {"length": length, "finer": finer, "until": until, "kinds": list(TrafficKind)}
        for (began_at,) in run_joined(alias, _OVER, asked):
            end = began_at + timedelta(minutes=length)
            rows = run_joined(alias, _READ, [list(TrafficKind), finer, began_at, end])
            _write(alias, length, began_at, added(span_of(row) for row in rows))


def forget(alias: str) -> int:
    """Delete spans that no page shows."""
    return sum(len(run_joined(alias, _FORGET, [list(TrafficKind), *one])) for one in KEPT.items())


def _write(alias: str, length: int, began_at: datetime, counts: Mapping[Key, TrafficCounts]) -> None:
    rows = [
        _row(kind, name, one)
        for kind in TrafficKind
        for name, one in capped({name: one for (of, name), one in counts.items() if of == kind}).items()
        if one.activity
    ]
    if rows:
        run_joined(alias, _WRITE, [length, began_at, json.dumps(rows)])


def added(spans: Iterable[TrafficSpan]) -> dict[Key, TrafficCounts]:
    """Add up spans by kind and name."""
    total: dict[Key, TrafficCounts] = defaultdict(TrafficCounts)
    for span in spans:
        total[span.kind, span.name].add(span.counts)
    return dict(total)


def span_of(row: tuple[Any, ...]) -> TrafficSpan:
    """Convert a row: kind, name, began_at, length, and the counts."""
    kind, name, began_at, length, *numbers, ran_seconds, ran, waited_seconds, waited = row
    counts = TrafficCounts(*numbers)
    counts.ran, counts.waited = Durations(ran_seconds, ran), Durations(waited_seconds, waited)
    return TrafficSpan(TrafficKind(kind), name, aware(began_at), length, counts)


def _row(kind: TrafficKind, name: str, counts: TrafficCounts) -> dict[str, Any]:
    return asdict(counts) | {
        "kind": kind,
        "name": name,
        "ran_seconds": round(counts.ran.seconds, 6),
        "ran": counts.ran.runs_by_bucket,
        "waited_seconds": round(counts.waited.seconds, 6),
        "waited": counts.waited.runs_by_bucket,
    }
