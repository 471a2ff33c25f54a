"""Read the facts for an explanation: at most five bounded statements, with the conditions of the claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from pulse_django import conf
from pulse_django.metrics import history
from pulse_django.metrics.vital_signs import LEASE_ACQUISITION, RUN_DURATION
from pulse_django.models import Job
from pulse_django.queue.capability import Bound, assembled
from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.lane_queries import IN_LANE, lanes_cte
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.sql_functions import loose_scan
from pulse_django.queue.gates import gate_relations, gates, shut_gates
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import Histogram

from . import reasons as said
from .facts import JobFacts, LineFacts, PaceFacts, ShutGate
from .reasons import Reason, whys

MOST_WORKERS = 10_000
MOST_SAID = 500  # characters of the message of a worker


@assembled
def _job() -> str:
    return f"""
SELECT
    statement_timestamp(), job.id, job.task, job.queue, job.priority, job.weight, job.lane_key, job.ready, job.status,
    job.next_run_at <= statement_timestamp(), job.next_run_at,
    CASE WHEN job.attempts = 0 THEN job.expires_at END, job.cancel_requested_at, job.locked_by, job.started_at,
    job.lease_until, job.lease_until < statement_timestamp(), job.finished_at,
    shut.codes, shut.opens_at, shut.reasons, shut.shut_by,
    COALESCE(latest.said, ''),
    fleet.serving, fleet.able, fleet.slots, fleet.free, fleet.roomiest, fleet.has_room
FROM {gate_relations()}pulse_django_job AS job
CROSS JOIN LATERAL (SELECT job.queue::text AS queue, job.lane_key::text AS key) AS lane
CROSS JOIN LATERAL (
    SELECT
        pg_catalog.array_agg(code) AS codes, pg_catalog.array_agg(opens_at) AS opens_at,
        pg_catalog.array_agg(reason) AS reasons, pg_catalog.array_agg(shut_by) AS shut_by
    FROM ({shut_gates("job")}) AS shut
) AS shut
LEFT JOIN LATERAL (
    SELECT pg_catalog.left(message, %(most_said)s::int) AS said
    FROM pulse_django_attempt
    WHERE job_id = job.id AND number = job.attempts AND outcome::text = 'RELEASED'
) AS latest ON true
CROSS JOIN LATERAL (
    SELECT
        count(*) FILTER (WHERE serves) AS serving,
        count(*) FILTER (WHERE serves AND knows) AS able,
        COALESCE(pg_catalog.sum(slots) FILTER (WHERE serves AND knows), 0)::bigint AS slots,
        COALESCE(pg_catalog.sum(free) FILTER (WHERE serves AND knows), 0)::bigint AS free,
        COALESCE(pg_catalog.max(free) FILTER (WHERE serves AND knows), 0) AS roomiest,
        COALESCE(
            pg_catalog.bool_or(free >= LEAST(job.weight, slots)) FILTER (WHERE serves AND knows), false
        ) AS has_room
    FROM (
        SELECT
            slots, GREATEST(slots - in_flight - stuck_slots, 0) AS free,
            queues = '[]' OR pg_catalog.jsonb_exists(queues, job.queue) AS serves,
            tasks IS NULL OR pg_catalog.jsonb_exists(tasks, job.task) AS knows
        FROM pulse_django_worker
        WHERE stopped_at IS NULL AND last_beat_at > statement_timestamp() - %(silence)s::interval
        LIMIT %(workers)s
    ) AS live
) AS fleet
WHERE job.id = %(id)s
"""  # noqa: S608 - made of constants


# The lanes of its queue from which a claim may take jobs before it, or instead of it.
_PAIRS = loose_scan(
    "pair",
    "queue, priority",
    where=f"{IS_CLAIMABLE} AND queue::text = %(queue)s::text AND priority >= %(priority)s::smallint",
    order="queue, priority DESC",
    following=("priority < pair.priority",),
)
_DUE = f"SELECT 1 FROM pulse_django_job_hot WHERE {IN_LANE} AND next_run_at <= statement_timestamp()"  # noqa: S608
_LINE = f"""{lanes_cte(_PAIRS)}
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM lane CROSS JOIN LATERAL ({_DUE} LIMIT %(most)s) AS due
        WHERE lane.priority > %(priority)s::smallint
        LIMIT %(most)s
    ) AS higher),
    (SELECT count(*) FROM (
        SELECT 1 FROM pulse_django_job_hot
        WHERE {IS_CLAIMABLE} AND queue::text = %(queue)s::text AND priority = %(priority)s::smallint AND ready
            AND lane_key::text = %(lane_key)s::text AND next_run_at <= statement_timestamp()
            AND (next_run_at, id) < (%(due)s::timestamptz, %(id)s::bigint)
        LIMIT %(most)s
    ) AS own),
    (SELECT count(*) FROM (
        SELECT 1 FROM lane CROSS JOIN LATERAL ({_DUE} LIMIT %(most)s) AS due
        WHERE lane.priority = %(priority)s::smallint AND lane.lane_key::text <> %(lane_key)s::text
        LIMIT %(most)s
    ) AS beside)
"""  # noqa: S608 - made of constants

RECENT = timedelta(minutes=10)
NEARLY_ALL = 0.95


_OWN, _OF_GATES = JobFacts._fields.index("shut"), len(ShutGate._fields)  # columns


def job(alias: str, job_id: int) -> JobFacts:
    """Read the job, its queue and its workers, or raise ``Job.DoesNotExist``."""
    params = {
        "id": job_id, "silence": conf.current().worker_silence, "workers": MOST_WORKERS, "most_said": MOST_SAID
    }  # fmt: skip
    if not (found := rows(alias, _job(), params)):
        raise Job.DoesNotExist(f"There is no job {job_id}.")
    own, shut, others = found[0][:_OWN], found[0][_OWN : _OWN + _OF_GATES], found[0][_OWN + _OF_GATES :]
    gates_shut = [ShutGate(*gate) for gate in zip(*(column or () for column in shut), strict=True)]
    return JobFacts._make([*own, gates_shut, *others])


def line(alias: str, found: JobFacts) -> LineFacts:
    params = {
        "id": found.id, "queue": found.queue, "priority": found.priority, "lane_key": found.lane_key,
        "due": found.next_run_at, "most": said.COUNTED + 1,
    }  # fmt: skip
    return LineFacts._make(rows(alias, _LINE, params)[0])


def pace(alias: str, found: JobFacts) -> PaceFacts:
    """Read the recent rate of the queue. A minute without a backlog has the rate of new jobs, and is ignored."""
    past = history.read(alias, within=RECENT)
    starts = [
        counters.total(signs, LEASE_ACQUISITION, queue=found.queue)
        for _, signs in past.minutes
        if history.due_in(signs, found.queue)
    ]
    ran = [
        value["buckets"]
        for _, signs in past.minutes
        for _, value in counters.leaves(signs, RUN_DURATION, task=found.task)
    ]
    return PaceFacts(starts=starts, run_seconds=Histogram.merged(ran).quantile(NEARLY_ALL))


# Estimate when a waiting job may start, from its position and the measured rates. Pure.


MINUTE = 60.0
POLL = 1.0  # seconds between polls of an idle worker that is not notified
MOST = timedelta(days=366).total_seconds()


def starts_in(
    job: JobFacts, reasons: Sequence[Reason], line: LineFacts, pace: PaceFacts, bounds: Sequence[Bound]
) -> tuple[timedelta, timedelta] | None:
    """Return the minimum and the maximum time at the measured rates, or None if it is unknown.

    The minimum assumes the rate of the fastest minute, and a start before other lanes of its priority. The maximum
    assumes the mean rate, after all jobs of its priority. Later jobs with a higher priority are not included.
    """
    if max(line) > said.COUNTED or any(reason.code in one.unknown for one in whys() for reason in reasons):
        return None
    closed = {*(code for one in whys() for code in one.closed), *(gate.code for gate in gates())}
    ends = [one.until for one in reasons if one.until is not None and one.code in closed]
    wait = max(((until - job.now).total_seconds() for until in ends), default=0.0)
    first, last = line.higher + line.own, line.higher + line.own + line.beside
    least, most = 0.0, POLL
    if last >= job.free:
        if not (fastest := max(pace.starts, default=0.0) / MINUTE):
            return None
        least = 0.0 if first < job.free else first / fastest
        most = (last + 1) * len(pace.starts) * MINUTE / sum(pace.starts) + POLL
    for bound in bounds:
        if (added := bound.adds(line.own, pace.run_seconds)) is None:
            return None
        least, most = max(least, added[0]), max(most, added[1] + POLL)
    shortest, longest = min(wait + least, MOST), min(wait + most, MOST)
    return timedelta(seconds=shortest), timedelta(seconds=max(shortest, longest))
