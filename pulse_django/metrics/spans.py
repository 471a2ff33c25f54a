"""Read the traffic of tasks and queues in the last hour, day or two weeks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.sql_functions import aware
from pulse_django.queue.words.counters import TrafficCounts, TrafficKind

from .traffic import COLUMNS, DAY, MINUTE, TEN_MINUTES, TWO_HOURS, WINDOW, TrafficSpan, span_of

MOST_NAMES = 500
KNOWN_FOR = timedelta(days=2)  # a queue is shown this long after its last job


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The period of a page."""

    key: str  # in addresses
    span: timedelta
    point: int  # minutes of one point of a chart
    lengths: Sequence[int]  # of the spans that are added up, the longest first

    @property
    def points(self) -> int:
        return int(self.span / timedelta(minutes=self.point))

    @property
    def lengths_of_points(self) -> Sequence[int]:
        """Return the lengths for a chart. Spans that are shorter than a point complete the last point."""
        return [length for length in self.lengths if length <= self.point]


WINDOWS = {
    one.key: one
    for one in (
        Window(key="hour", span=timedelta(hours=1), point=MINUTE, lengths=(TEN_MINUTES, MINUTE)),
        Window(key="day", span=timedelta(days=1), point=TEN_MINUTES, lengths=(TWO_HOURS, TEN_MINUTES, MINUTE)),
        Window(key="weeks", span=WINDOW, point=TWO_HOURS, lengths=(DAY, TWO_HOURS, TEN_MINUTES, MINUTE)),
    )
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)  # all spans begin at a multiple of their length since then

_ENDS = """
SELECT statement_timestamp(), level.length, latest.began_at + level.length::float8 * interval '1 min'
FROM pg_catalog.unnest(%s::int[]) AS level (length)
CROSS JOIN LATERAL (
    SELECT pg_catalog.max(began_at) AS began_at FROM pulse_django_traffic
    WHERE kind::text = %s AND length = level.length AND began_at <= statement_timestamp()
) AS latest
"""

# OFFSET keeps the planner from joining the parts with all rows: each part is a range of the key.
_COVERED = f"""
SELECT traffic.*
FROM ROWS FROM (
    pg_catalog.unnest(%(lengths)s::int[]), pg_catalog.unnest(%(begins)s::timestamptz[]),
    pg_catalog.unnest(%(ends)s::timestamptz[])
) AS part (length, begins, ends)
CROSS JOIN LATERAL (
    SELECT kind, name, began_at, length, {COLUMNS}
    FROM pulse_django_traffic
    WHERE kind::text = %(kind)s AND length = part.length AND began_at >= part.begins AND began_at < part.ends
        AND (%(name)s::text IS NULL OR name::text = %(name)s::text)
    OFFSET 0
) AS traffic
"""  # noqa: S608 - made of constants

_RELEASES = """
SELECT version, seen_at FROM pulse_django_release
WHERE seen_at > %s AND seen_at <= statement_timestamp()
ORDER BY seen_at DESC, id DESC
LIMIT 50
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A release, and its position in the window: from 0, the beginning, to 1, now."""

    version: str
    at: datetime
    place: float


@dataclass(slots=True, kw_only=True)
class Course:
    """The traffic of one task or queue in a window: a sum for each point, the oldest first."""

    window: Window
    begins: list[datetime] = field(default_factory=list)  # of the points; empty without data
    points: list[TrafficCounts] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def total(self) -> TrafficCounts:
        return _sum(self.points)


def read_course(alias: str, kind: TrafficKind, name: str, window: Window) -> Course:
    """Read the points of a chart, with three queries."""
    now, spans = _read(alias, kind, name, window, window.lengths_of_points)
    points = [TrafficCounts() for _ in range(window.points)]
    for span in spans:
        age = now - span.began_at
        place = window.points - 1 - int(age / timedelta(minutes=window.point))
        points[max(0, place)].add(span.counts)
    begin = now - window.span
    marks = [
        Mark(version=version, at=aware(seen_at), place=(aware(seen_at) - begin) / window.span)
        for version, seen_at in rows(alias, _RELEASES, [begin])
    ]
    begins = [begin + timedelta(minutes=window.point) * place for place in range(window.points)]
    return Course(window=window, begins=begins, points=points, marks=marks)


def read_totals(alias: str, kind: TrafficKind, window: Window) -> dict[str, TrafficCounts]:
    """Add up the window for each name, with two queries."""
    _, spans = _read(alias, kind, None, window, window.lengths)
    total: dict[str, TrafficCounts] = defaultdict(TrafficCounts)
    for span in spans:
        total[span.name].add(span.counts)
    return dict(total)


def _sum(counts: Iterable[TrafficCounts]) -> TrafficCounts:
    total = TrafficCounts()
    for one in counts:
        total.add(one)
    return total


def _read(
    alias: str, kind: TrafficKind, name: str | None, window: Window, lengths: Sequence[int]
) -> tuple[datetime, list[TrafficSpan]]:
    """Read the longest available spans, and shorter ones before and after them."""
    found = rows(alias, _ENDS, [list(lengths), kind])
    now: datetime = aware(found[0][0])
    ends = {length: aware(until) for _, length, until in found}
    parts = list(_cover(now - window.span, now, lengths, ends))
    params = {
        "lengths": [length for length, _, _ in parts],
        "begins": [begin for _, begin, _ in parts],
        "ends": [end for _, _, end in parts],
        "kind": kind,
        "name": name,
    }
    return now, [span_of(row) for row in rows(alias, _COVERED, params)]


def _cover(
    begin: datetime, end: datetime, lengths: Sequence[int], ends: Mapping[int, datetime | None]
) -> Iterator[tuple[int, datetime, datetime]]:
    """Divide a period into parts. Yield the length of spans, and the range of their beginnings, for each part."""
    length, *shorter = lengths
    if not shorter:
        yield length, begin, end
        return
    step = timedelta(minutes=length)
    first = begin + (_EPOCH - begin) % step  # the first span that begins within
    last = min(ends[length] or first, end)
    if last <= first:
        yield from _cover(begin, end, shorter, ends)
        return
    yield length, first, last
    yield from _cover(begin, first, shorter, ends)
    yield from _cover(last, end, shorter, ends)
