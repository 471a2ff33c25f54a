"""The statistics of each minute: one small row, written by the first watchdog that is ready.

Workers write nothing for it. The ids of jobs and attempts rise with time, so a minute is a range of ids. Jobs that a
transaction enqueued in one minute and committed in a later one are not counted.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pulse_django.queue.database import releases
from pulse_django.queue.database.job_queries import OUT_OF_ORDER, depths, id_at
from pulse_django.queue.database.sql_functions import read
from pulse_django.queue.database.transactions import Table, TableManager, joined, run_joined
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import PER_DOUBLING, SMALLEST, Counters, TrafficCounts, TrafficKind, VitalSign
from pulse_django.queue.words.job_ids import range_of_ids, shard_number_of
from pulse_django.queue.words.states import Status
from pulse_django.shards.ids import IDS_OF_JOBS, position_of

from . import traffic
from .traffic import Key
from .vital_signs import (
    BATCH_DURATION,
    DATABASE_ERRORS,
    DEATH_TO_REQUEUE,
    ENQUEUE_TO_START,
    FENCING_REJECTIONS,
    HEARTBEAT_DELAY,
    HEARTBEATS,
    JOBS_ENDED,
    JOBS_ENQUEUED,
    JOBS_EXPIRED,
    LATE_REPORTS,
    LEASE_ACQUISITION,
    LEASE_EXPIRATIONS,
    LIMIT_REFUSALS,
    RECOVERY_REQUEUES,
    RUN_DURATION,
    RUNS,
)

# Watchdogs check about once a minute. After a longer interruption, older minutes are not written.
MOST_CAUGHT_UP = 10
KEPT = timedelta(days=2)
MOST_WAITING = 1_000_000  # waiting jobs that are counted, in a fifth of a second; deeper queues are undercounted

# Five seconds after the end, so that no rows of that minute are still being written. Rows in the future were written
# before the clock was set back, and are ignored.
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
# Without the parts that only the page of a worker reads, to keep the minutes small.
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

# Including minutes in the future: the clock was set back, and the latest minute has their totals.
_FORGET = """
DELETE FROM pulse_django_minute
WHERE minute < statement_timestamp() - %s::interval OR (minute > statement_timestamp() AND totals IS NULL)
RETURNING minute
"""


class MinuteManager(TableManager[Table]):
    def unwritten(self) -> list[datetime]:
        """Return those of the last minutes that are over but not written."""
        return [minute for (minute,) in run_joined(self.write_alias, _UNWRITTEN, [MOST_CAUGHT_UP - 1])]

    def write(self, minute: datetime, *, is_latest: bool = True) -> bool:
        """Write the counts of a minute, and the present state if it is the latest. Return whether we were first."""
        totals, before = self._before(minute)
        found, workers = counted_in(self.write_alias, minute), before
        counted, stands = found.signs, dict[str, Any]()
        if is_latest:
            said = {key: read(vitals) for key, vitals in run_joined(self.write_alias, _WORKERS, [])}
            workers = {key: vitals for key, vitals in said.items() if isinstance(vitals, dict)}
            counted = counters.added(counted, counted_by_workers(workers, before))
            waiting = depths(self.write_alias, MOST_WAITING)
            stands = {"queues": {depth.queue: [depth.due, depth.later, depth.overdue] for depth in waiting}}
        totals = counters.added(totals, counted)
        values = [json.dumps(value) for value in (counters.added({}, counted) | stands, totals, workers)]
        with joined(self.write_alias):
            is_first = bool(run_joined(self.write_alias, _WRITE, [minute, *values]))
            if is_first:
                run_joined(self.write_alias, _RELIEVE, [minute])
                traffic.write(self.write_alias, minute, found.traffic)
                releases.note_release(self.write_alias)
        return is_first

    def note(self, minute: datetime, signs: Mapping[str, Any]) -> None:
        """Add signs to a minute."""
        run_joined(self.write_alias, _NOTE, [json.dumps(signs), minute])

    def forget(self, older_than: timedelta = KEPT) -> int:
        """Delete minutes that are too old for all readers, except for their totals."""
        traffic.forget(self.write_alias)
        releases.forget(self.write_alias)
        return len(run_joined(self.write_alias, _FORGET, [older_than]))

    def _before(self, minute: datetime) -> tuple[Counters, dict[str, Any]]:
        rows = run_joined(self.write_alias, _BEFORE, [minute])
        return (json.loads(rows[0][0]), json.loads(rows[0][1] or "{}")) if rows else ({}, {})


# The counts of one minute, from the tables. Each query reads a range of ids or of an index.


LENGTH = timedelta(minutes=1)

_CREATED = """
SELECT task, queue, count(*)
FROM pulse_django_job
WHERE id >= %(first_job)s AND id < %(last_job)s AND created_at >= %(begin)s AND created_at < %(end)s
GROUP BY task, queue
"""

# A UNION, so that each part is a range of the retention index.
_ENDED = """
SELECT '', queue, 'COMPLETED', count(*), 0 FROM pulse_django_job
WHERE status::text = 'COMPLETED' AND finished_at >= %(begin)s AND finished_at < %(end)s GROUP BY queue
UNION ALL
SELECT task, queue, 'DEAD_LETTERED', count(*), 0 FROM pulse_django_job_hot
WHERE status::text = 'DEAD_LETTERED' AND finished_at >= %(begin)s AND finished_at < %(end)s GROUP BY task, queue
UNION ALL
SELECT
    '', queue, 'CANCELLED', count(*),
    count(*) FILTER (WHERE expires_at IS NOT NULL AND attempts = 0 AND cancel_requested_at IS NULL)
FROM pulse_django_job
WHERE status::text = 'CANCELLED' AND finished_at >= %(begin)s AND finished_at < %(end)s GROUP BY queue
"""

# A run that began in the minute and has ended, ended in it or soon after it.
_STARTED = """
SELECT task, queue, count(*)
FROM (
    SELECT task, queue FROM pulse_django_job_hot
    WHERE status::text = 'RUNNING' AND started_at >= %(begin)s AND started_at < %(end)s
    UNION ALL
    SELECT task, queue FROM pulse_django_job
    WHERE status::text = 'COMPLETED' AND finished_at >= %(begin)s AND finished_at < %(soon)s
        AND started_at >= %(begin)s AND started_at < %(end)s AND completed_by IS NOT NULL
    UNION ALL
    SELECT job.task, job.queue
    FROM pulse_django_attempt AS attempt
    JOIN pulse_django_job AS job ON job.id = attempt.job_id
    WHERE attempt.id >= %(first_attempt)s AND attempt.finished_at >= %(begin)s AND attempt.finished_at < %(soon)s
        AND attempt.started_at >= %(begin)s AND attempt.started_at < %(end)s
) AS begun
GROUP BY task, queue
"""

_BUCKET = f"""pg_catalog.ceil(
    pg_catalog.ln(GREATEST({{took}}, {SMALLEST}) / {SMALLEST}::float8) / pg_catalog.ln(2.0::float8)
    * {PER_DOUBLING}::float8 - 1e-9::float8
)::int"""


def _durations(
    sign: VitalSign, took: str, condition: str, *, task: str = "''", queue: str = "''", source: str = "ended"
) -> str:
    """Return a query of durations."""
    bucket = _BUCKET.format(took=took)
    return f"""
SELECT '{sign.name}', {task}, {queue}, '', {bucket}, count(*), pg_catalog.sum({took}), 0, 0
FROM {source}
WHERE {condition}
GROUP BY 2, 3, 5"""  # noqa: S608 - made of constants


# Jobs are joined by id. A run whose job was pruned within the minute is counted without a name.
_RUNS = """
WITH ended AS MATERIALIZED (
    SELECT
        COALESCE(job.task, '') AS task, COALESCE(job.queue, '') AS queue, attempt.outcome, attempt.number,
        EXTRACT(epoch FROM attempt.finished_at - attempt.started_at)::float8 AS ran,
        EXTRACT(epoch FROM attempt.started_at - attempt.due_at)::float8 AS waited,
        EXTRACT(epoch FROM attempt.started_at - job.created_at)::float8 AS begun_after,
        EXTRACT(epoch FROM attempt.finished_at - attempt.last_seen_at)::float8 AS recovered,
        job.status::text = 'DEAD_LETTERED' AND job.attempts = attempt.number AS is_dead
    FROM pulse_django_attempt AS attempt
    LEFT JOIN pulse_django_job AS job ON job.id = attempt.job_id
    WHERE attempt.id >= %(first_attempt)s AND attempt.id < %(last_attempt)s
        AND attempt.finished_at >= %(begin)s AND attempt.finished_at < %(end)s
    UNION ALL
    SELECT
        task, queue, 'SUCCEEDED', attempts, EXTRACT(epoch FROM finished_at - started_at)::float8,
        EXTRACT(epoch FROM started_at - next_run_at)::float8, EXTRACT(epoch FROM started_at - created_at)::float8,
        NULL::float8, false
    FROM pulse_django_job
    WHERE status::text = 'COMPLETED' AND finished_at >= %(begin)s AND finished_at < %(end)s
        AND completed_by IS NOT NULL
)
"""
_BATCHES = """(
    SELECT kind, EXTRACT(epoch FROM finished_at - created_at)::float8 AS took
    FROM pulse_django_batch
    WHERE finished_at IS NOT NULL AND finished_at >= %(begin)s AND finished_at < %(end)s
        AND cancelled_at IS NULL AND parent_id IS NULL
) AS batch"""
_HOW_THEY_ENDED = f"""{_RUNS}
SELECT
    '', task, queue, outcome, NULL::int, count(*), NULL::float8,
    count(*) FILTER (WHERE outcome::text = 'WORKER_LOST' AND NOT COALESCE(is_dead, false)),
    count(*) FILTER (WHERE outcome::text = 'WORKER_LOST' AND recovered IS NOT NULL)
FROM ended
GROUP BY task, queue, outcome
UNION ALL {_durations(RUN_DURATION, "ran", "true", task="task", queue="queue")}
UNION ALL {_durations(LEASE_ACQUISITION, "waited", "waited IS NOT NULL", task="task", queue="queue")}
UNION ALL {_durations(ENQUEUE_TO_START, "begun_after", "number = 1 AND begun_after IS NOT NULL", queue="queue")}
UNION ALL {_durations(DEATH_TO_REQUEUE, "recovered", "recovered IS NOT NULL")}
UNION ALL {_durations(BATCH_DURATION, "took", "true", task="kind", source=_BATCHES)}
"""  # noqa: S608 - made of constants
_MEASURED = {
    sign.name: sign for sign in (RUN_DURATION, LEASE_ACQUISITION, ENQUEUE_TO_START, DEATH_TO_REQUEUE, BATCH_DURATION)
}

_LATE = """
SELECT late_outcome, count(*) FROM pulse_django_attempt
WHERE late_at >= %(begin)s AND late_at < %(end)s AND NOT (outcome::text = 'SUCCEEDED' AND late_outcome::text = 'FAILED')
GROUP BY late_outcome
"""


@dataclass(slots=True)
class Counted:
    """The counts of a minute: the vital signs, and the traffic by task and by queue."""

    signs: Counters = field(default_factory=dict)
    traffic: defaultdict[Key, TrafficCounts] = field(default_factory=lambda: defaultdict(TrafficCounts))

    def of(self, task: str, queue: str) -> list[TrafficCounts]:
        """Return the counts of a task and of a queue. An empty name has no counts."""
        named = ((TrafficKind.TASK, task), (TrafficKind.QUEUE, queue))
        return [self.traffic[kind, name] for kind, name in named if name]

    def measure(self, sign: VitalSign, task: str, queue: str, bucket: int, runs: int, seconds: float) -> None:
        labels = {"task": task, "kind": task, "queue": queue}
        counters.measure(self.signs, sign, tuple(labels[label] for label in sign.labels), bucket, runs, seconds)
        for one in self.of(task, queue):
            if sign is RUN_DURATION:
                one.ran.measure(bucket, runs, seconds)
            elif sign is LEASE_ACQUISITION:
                one.waited.measure(bucket, runs, seconds)


def counted_in(alias: str, begin: datetime) -> Counted:
    """Count the minute with this beginning."""
    span, counted = _span(alias, begin), Counted()
    tally = counted.signs
    for task, queue, jobs in run_joined(alias, _CREATED, span):
        counters.count(tally, JOBS_ENQUEUED, (queue,), jobs)
        for one in counted.of(task, queue):
            one.enqueued += jobs
    for task, queue, runs in run_joined(alias, _STARTED, span):
        for one in counted.of(task, queue):
            one.started += runs
    for task, queue, status, jobs, expired in run_joined(alias, _ENDED, span):
        counters.count(tally, JOBS_ENDED, (queue, status), jobs)
        if expired:
            counters.count(tally, JOBS_EXPIRED, (queue,), expired)
        if status == Status.DEAD_LETTERED:
            for one in counted.of(task, queue):
                one.died += jobs
    rows = run_joined(alias, _HOW_THEY_ENDED, span)
    for what, task, queue, outcome, bucket, number, seconds, requeued, expired in rows:
        if sign := _MEASURED.get(what):
            counted.measure(sign, task, queue, bucket, number, seconds)
            continue
        counters.count(tally, RUNS, (task, outcome), number)
        counters.count(tally, RECOVERY_REQUEUES, (), requeued)
        counters.count(tally, LEASE_EXPIRATIONS, (), expired)
        for one in counted.of(task, queue):
            one.count_runs(outcome, number)
    for outcome, reports in run_joined(alias, _LATE, span):
        counters.count(tally, LATE_REPORTS, (outcome,), reports)
    return counted


def _span(alias: str, begin: datetime) -> dict[str, Any]:
    end = begin + LENGTH
    span: dict[str, Any] = {"begin": begin, "end": end, "soon": end + LENGTH}
    own = range_of_ids(shard_number_of(position_of(alias, IDS_OF_JOBS)))  # without ids of jobs that were moved here
    for name, table, column in (
        ("job", "pulse_django_job", "created_at"),
        ("attempt", "pulse_django_attempt", "finished_at"),
    ):
        first, last = (id_at(alias, table, column, instant, own) for instant in (begin, end))
        span |= {f"first_{name}": first - OUT_OF_ORDER, f"last_{name}": last + OUT_OF_ORDER}
    return span


def counted_by_workers(now: Mapping[str, Any], before: Mapping[str, Any]) -> Counters:
    """Return the counts of workers since the last minute, from their counts since their starts."""
    tally: Counters = {}
    for key, vitals in now.items():
        if not isinstance(vitals, Mapping):
            continue  # an invalid row must not prevent the minute from being written
        fresh = counters.since(vitals, before.get(key) or {})
        counters.count(tally, HEARTBEATS, ("answered",), fresh.get("beats", 0))
        counters.count(tally, HEARTBEATS, ("failed",), fresh.get("beat_failures", 0))
        counters.count(tally, DATABASE_ERRORS, (), fresh.get("database_errors", 0))
        for verb, times in fresh.get("refused", {}).items():
            counters.count(tally, FENCING_REJECTIONS, (verb,), times)
        for labels, times in counters.leaves({LIMIT_REFUSALS.name: fresh.get("limit_refusals")}, LIMIT_REFUSALS):
            if times:
                counters.count(tally, LIMIT_REFUSALS, labels, times)
        for bucket, beats in fresh.get("beat_delays", {}).items():
            if beats:
                seconds = SMALLEST * 2 ** (int(bucket) / PER_DOUBLING)
                counters.measure(tally, HEARTBEAT_DELAY, (), int(bucket), beats, beats * seconds)
    return tally
