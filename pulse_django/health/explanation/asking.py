"""Reads what stands in the way of a job: at most five statements, each bounded, with the conditions of the claim."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from pulse_django import conf
from pulse_django.limits import claim_limited
from pulse_django.limits.keys import limiters_of_claim
from pulse_django.metrics import history
from pulse_django.metrics.vital_signs import LEASE_ACQUISITION, RUN_DURATION
from pulse_django.models import Job
from pulse_django.queue.capability import assembled
from pulse_django.queue.database.constraints import IS_CLAIMABLE
from pulse_django.queue.database.lane_queries import IN_LANE, lanes_cte
from pulse_django.queue.database.read_only import rows
from pulse_django.queue.database.sql_functions import loose_scan
from pulse_django.queue.gates import gate_relations, gates, shut_gates
from pulse_django.queue.words import counters
from pulse_django.queue.words.counters import Histogram
from pulse_django.queue.words.lane_keys import limiter_of_queue

from .facts import JobFacts, LimitFacts, LineFacts, PaceFacts, ShutGate
from .reasons import Reason

COUNTED = 10_000  # jobs of each kind, at most
HOLDERS = 10  # jobs that are named
MOST_WORKERS = 10_000
MOST_SAID = 500  # characters of what a worker said


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


# As the claim counts them, without its locks: it may be otherwise in the next moment.
_HELD = """
    SELECT
        COALESCE(pg_catalog.sum(weight), 0)::bigint AS n,
        COALESCE((pg_catalog.array_agg(id ORDER BY token))[1:%(holders)s], '{{}}') AS ids
    FROM (
        SELECT id, token, weight FROM pulse_django_job_hot
        WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '') AND {where}
        ORDER BY token
        LIMIT %(most)s
    ) AS held"""
_OF_LIMITER = """(pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE "C") = %(limiter)s::text"""
_OF_QUEUE = "queue::text = %(queue)s::text"


def _rate(rate: str, tokens: str, names: dict[str, str]) -> str:
    """Return the columns of a rate: its tokens, when there is a whole one, and how often one comes."""
    when, every = (claim_limited.NEXT_IN.format(tokens=one, **names) for one in (tokens, "0::float8"))
    return f"CASE WHEN {rate} IS NOT NULL THEN {tokens} END, {when}, {every}"


_LIMIT = f"""
WITH {claim_limited.LIMITER.replace("%s", "%(limiter)s")},
clock AS MATERIALIZED (SELECT statement_timestamp() AS at),
overall AS MATERIALIZED (
    SELECT {claim_limited.TOKENS.format(at="clock.at", **claim_limited.OVERALL)} AS tokens
    FROM limiter
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.rate IS NOT NULL AND bucket.scope::text = limiter.name
),
keyed AS MATERIALIZED (
    SELECT {claim_limited.TOKENS.format(at="clock.at", **claim_limited.OF_KEY)} AS tokens
    FROM limiter
    CROSS JOIN clock
    LEFT JOIN pulse_django_bucket AS bucket ON limiter.key_rate IS NOT NULL AND bucket.scope::text = %(lane_key)s::text
)
SELECT
    limiter.running, held.n, held.ids, limiter.per_key, of_key.n, of_key.ids,
    {_rate("limiter.rate", "overall.tokens", claim_limited.OVERALL)},
    {_rate("limiter.key_rate", "keyed.tokens", claim_limited.OF_KEY)},
    limiter.closed_until > clock.at, limiter.closed_until,
    (SELECT closed_reason FROM pulse_django_limiter AS row WHERE row.name::text = limiter.name),
    limiter.half_open
FROM limiter
CROSS JOIN clock
CROSS JOIN overall
CROSS JOIN keyed
CROSS JOIN ({_HELD.format(where="{of_whom}")}) AS held
CROSS JOIN ({_HELD.format(where="lane_key::text = %(lane_key)s::text")}) AS of_key
"""  # noqa: S608 - made of constants

# The lanes of its queue that a claim may take before it, or instead of it.
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

_PAUSED_BATCH = """
SELECT batch.id, batch.name
FROM pulse_django_job_hot AS job
JOIN pulse_django_batch AS batch ON batch.id = job.batch_id
WHERE job.id = %(id)s AND batch.paused_at IS NOT NULL
"""

RECENT = timedelta(minutes=10)
NEARLY_ALL = 0.95


_OWN, _OF_GATES = JobFacts._fields.index("shut"), len(ShutGate._fields)  # columns


class PausedBatch(NamedTuple):
    id: int
    name: str


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


def paused_batch(alias: str, found: JobFacts) -> PausedBatch | None:
    """Return the batch of a job, if it is paused."""
    return next((PausedBatch._make(row) for row in rows(alias, _PAUSED_BATCH, {"id": found.id})), None)


def limits(alias: str, found: JobFacts) -> list[LimitFacts]:
    """Read the limits that a claim of the job keeps: its task's, and its queue's."""
    return [_limit(alias, found, limiter) for limiter in limiters_of_claim(found.queue, found.lane_key)]


def _limit(alias: str, found: JobFacts, limiter: str) -> LimitFacts:
    params = {
        "limiter": limiter, "lane_key": found.lane_key, "queue": found.queue, "most": COUNTED + 1, "holders": HOLDERS,
    }  # fmt: skip
    is_of_queue = limiter == limiter_of_queue(found.queue)
    of_whom = _OF_QUEUE if is_of_queue else _OF_LIMITER
    [row] = rows(alias, _LIMIT.replace("{of_whom}", of_whom), params)
    return LimitFacts(limiter, None if is_of_queue else found.key, *row)


def line(alias: str, found: JobFacts) -> LineFacts:
    params = {
        "id": found.id, "queue": found.queue, "priority": found.priority, "lane_key": found.lane_key,
        "due": found.next_run_at, "most": COUNTED + 1,
    }  # fmt: skip
    return LineFacts._make(rows(alias, _LINE, params)[0])


def pace(alias: str, found: JobFacts) -> PaceFacts:
    """Read how fast the queue was of late. A minute without a backlog says how much came, and not how fast it is."""
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


# When a waiting job may start: from its place in line and from what was measured. Pure.


MINUTE = 60.0
POLL = 1.0  # seconds within which an idle worker looks, if nothing wakes it
UNKNOWN = ("limit-half-open",)  # it depends on how the one run ends
MOST = timedelta(days=366).total_seconds()


def starts_in(
    job: JobFacts, reasons: Sequence[Reason], line: LineFacts, pace: PaceFacts, limits: Sequence[LimitFacts]
) -> tuple[timedelta, timedelta] | None:
    """Return how long it takes at least and at most at the measured pace; None if that is not known.

    At least: at the rate of the fastest minute, with no job before it. At most: at the mean rate, after all jobs of its
    priority. What is enqueued later with a higher priority comes on top.
    """
    if max(line) > COUNTED or any(reason.code in UNKNOWN for reason in reasons):
        return None
    closed = {"limit-closed", *(gate.code for gate in gates())}  # nothing starts before these end
    ends = [one.until for one in reasons if one.until is not None and one.code in closed]
    wait = max(((until - job.now).total_seconds() for until in ends), default=0.0)
    first, last = line.higher + line.own, line.higher + line.own + line.beside
    least, most = 0.0, POLL
    if last >= job.free:
        if not (fastest := max(pace.starts, default=0.0) / MINUTE):
            return None
        least = 0.0 if first < job.free else first / fastest
        most = (last + 1) * len(pace.starts) * MINUTE / sum(pace.starts) + POLL
    for limit in limits:
        if (bounds := _of_limit(limit, line.own, pace)) is None:
            return None
        least, most = max(least, bounds[0]), max(most, bounds[1])
    shortest, longest = min(wait + least, MOST), min(wait + most, MOST)
    return timedelta(seconds=shortest), timedelta(seconds=max(shortest, longest))


def _of_limit(limit: LimitFacts, before: int, pace: PaceFacts) -> tuple[float, float] | None:
    """Return what a limit adds to the jobs before it in its lane, of at least and at most."""
    least = 0.0
    for tokens, every in ((limit.tokens, limit.token_every), (limit.key_tokens, limit.key_token_every)):
        if tokens is not None and every is not None:
            least = max(least, (before + 1 - tokens) * every)
    most = least
    for number, held in ((limit.running, limit.held), (limit.per_key, limit.held_of_key)):
        if number is None or held + before < number:
            continue
        if pace.run_seconds is None:
            return None
        rounds = (held + before) // number
        most = max(most, rounds * pace.run_seconds)
    return least, most + POLL
