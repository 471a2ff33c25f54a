"""Move waiting jobs from one shard to another, in steps each of which can be repeated.

1. ``depart``: one transaction in the old shard deletes the jobs from its tables and writes them as departures.
2. ``arrive``: one transaction in the new shard writes them to its tables, unless they arrived before.
3. ``forget_departures`` in the old shard, and then ``forget_arrivals`` in the new one.

A statement of step 2 may come late, because a network or a lock delayed it while its sender died. By then the job may
have ended, and both shards may have deleted their records of the move. So the new shard keeps its records for a time,
and step 2 is valid only for a shorter time, by the clock of the new shard.

If another job in the new shard holds the unique key of a job, this job is refused there for good, and goes back. A
process that dies between two steps leaves departures, and the next process that finds them continues with step 2. A job
is never in the tables of two shards, and always in a table or in a departure. Its rows keep their ids.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from django.db import IntegrityError

from pulse_django.queue.database.job_queries import JobReader
from pulse_django.queue.database.querysets import JobQuerySet
from pulse_django.queue.database.transactions import run_alone
from pulse_django.queue.prune import satellites
from pulse_django.queue.statements import compiled, skip_locked

_TAKE = """taken_{name} AS (
    DELETE FROM {table} WHERE job_id = ANY (ARRAY(SELECT id FROM gone)) RETURNING *
)"""
_TAKEN = """'{name}'::text, COALESCE(
    (SELECT pg_catalog.json_agg(one) FROM taken_{name} AS one WHERE one.job_id = gone.id), '[]'::json
)"""
_DEPART = """
WITH picked AS MATERIALIZED ({picked}),
gone AS (
    DELETE FROM pulse_django_job_hot WHERE id = ANY (ARRAY(SELECT id FROM picked)) AND locked_by IS NULL RETURNING *
),
{takes}
INSERT INTO pulse_django_departure (job_id, to_shard, rows)
SELECT gone.id, %s, pg_catalog.json_build_object('job'::text, pg_catalog.to_json(gone), {taken})::jsonb
FROM gone
ORDER BY gone.id
RETURNING job_id
"""

_DEPARTED = """
SELECT id, job_id, to_shard, rows::text FROM pulse_django_departure WHERE {condition} ORDER BY id LIMIT %s
"""

_PUT_JOB = """put_job AS (
    INSERT INTO pulse_django_job_hot
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_populate_record(NULL::pulse_django_job_hot, fresh.rows->'job'::text) AS row
    RETURNING {returned}
)"""
_PUT = """put_{name} AS (
    INSERT INTO {table}
    SELECT row.*
    FROM fresh, pg_catalog.jsonb_array_elements(fresh.rows->'{name}'::text) AS one,
        pg_catalog.jsonb_populate_record(NULL::{table}, one.value) AS row
)"""
_ARRIVE = f"""
WITH sent AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS sent (id bigint, rows jsonb)
    WHERE clock_timestamp() < %s::timestamptz
),
arrived AS (
    INSERT INTO pulse_django_arrival (departure_id) SELECT id FROM sent ON CONFLICT DO NOTHING RETURNING departure_id
),
fresh AS MATERIALIZED (SELECT sent.* FROM sent JOIN arrived ON arrived.departure_id = sent.id),
{_PUT_JOB.format(returned="queue")},
{{puts}}
SELECT queue, NULL::bigint, false FROM put_job GROUP BY queue
UNION ALL
SELECT NULL::text, departure_id, false FROM arrived
UNION ALL
SELECT NULL::text, departure_id, is_refused FROM pulse_django_arrival JOIN sent ON sent.id = departure_id
"""  # noqa: S608 - made of constants

_REFUSE = """
INSERT INTO pulse_django_arrival (departure_id, is_refused) VALUES (%s, true)
ON CONFLICT (departure_id) DO UPDATE SET is_refused = pulse_django_arrival.is_refused
RETURNING is_refused
"""
_GO_BACK = f"""
WITH fresh AS (DELETE FROM pulse_django_departure WHERE id = ANY (%s) RETURNING id, rows),
{_PUT_JOB.format(returned="id")},
{{puts}}
SELECT id FROM put_job
"""  # noqa: S608 - made of constants

_FORGET_DEPARTURES = "DELETE FROM pulse_django_departure WHERE id = ANY (%s) RETURNING id"
_FORGET_ARRIVALS = """
WITH locked AS MATERIALIZED (
    SELECT departure_id
    FROM pulse_django_arrival
    WHERE departure_id = ANY (%s)
    ORDER BY departure_id
    FOR NO KEY UPDATE
),
forgotten AS MATERIALIZED (SELECT departure_id, clock_timestamp() AS at FROM locked),
noted AS (
    UPDATE pulse_django_arrival AS arrival
    SET forgotten_at = forgotten.at
    FROM forgotten
    WHERE arrival.departure_id = forgotten.departure_id
    RETURNING arrival.departure_id
)
SELECT departure_id FROM noted
"""
_DELETE_FORGOTTEN = """
DELETE FROM pulse_django_arrival WHERE forgotten_at < statement_timestamp() - %s::interval RETURNING departure_id
"""
_DEADLINE = "SELECT (clock_timestamp() + %s::interval)::text"


def _of_each(text: str, separator: str = ",\n") -> str:
    """Return this text for each kind of rows that moves with a job."""
    return separator.join(text.format(table=one.table, name=one.rows) for one in satellites() if one.rows)


# How long a statement of step 2 is valid. If shorter, slow ones are sent again. If longer, more rows are kept.
GOOD_FOR = timedelta(seconds=30)
KEPT_FOR = 4 * GOOD_FOR  # after the departure was deleted, so that no such statement is sent any more


class OnItsWay(NamedTuple):
    """A job that has left a shard and is not known to have arrived."""

    departure_id: int
    job_id: int
    to_shard: int
    rows: str


def depart(jobs: JobReader, wanted: JobQuerySet[Any], to_shard: int) -> list[int]:
    """Take jobs out of this shard, and return their ids. Locked jobs stay."""
    picked, params = compiled(skip_locked(wanted.order_by("id").values("id")), jobs.write_alias)
    statement = _DEPART.format(picked=picked, takes=_of_each(_TAKE), taken=_of_each(_TAKEN, ", "))
    return [row[0] for row in run_alone(jobs.write_alias, statement, [*params, to_shard])]


def departures(alias: str, *, job_ids: Collection[int] | None = None, most: int = 1_000) -> list[OnItsWay]:
    """Return jobs that have left a shard: these, or the first ``most``."""
    condition, params = ("true", []) if job_ids is None else ("job_id = ANY (%s)", [list(job_ids)])
    rows = run_alone(alias, _DEPARTED.format(condition=condition), [*params, most])
    return [OnItsWay._make(row) for row in rows]


def deadline(alias: str) -> str:
    """Return until when, by this shard's clock, departures that are read after this call may be written."""
    return str(run_alone(alias, _DEADLINE, [GOOD_FOR])[0][0])


class Arrived(NamedTuple):
    """The state of departures in their new shard. Departures in neither set came too late to be written."""

    queues: set[str]
    there: set[int]
    refused: set[int]


def arrive(alias: str, sent: Sequence[OnItsWay], until: str) -> Arrived:
    """Write jobs to their new shard, unless this comes after ``deadline()``."""
    try:
        rows = run_alone(alias, _ARRIVE.format(puts=_of_each(_PUT)), [_as_json(sent), until])
    except IntegrityError:
        if len(sent) == 1:
            only = {sent[0].departure_id}
            return Arrived(set(), set(), only) if refuse(alias, *only) else Arrived(set(), only, set())
        parts = [arrive(alias, [one], until) for one in sent]  # so that a refused job does not block the others
        return Arrived(*(set().union(*found) for found in zip(*parts, strict=True)))
    return Arrived(
        {queue for queue, _, _ in rows if queue is not None},
        {one for _, one, is_refused in rows if one is not None and not is_refused},
        {one for _, one, is_refused in rows if is_refused},
    )


def refuse(alias: str, departure_id: int) -> bool:
    """Refuse a job in this shard for good. Return False if it has arrived already."""
    return bool(run_alone(alias, _REFUSE, [departure_id])[0][0])


def go_back(alias: str, departure_ids: Collection[int]) -> None:
    """Write jobs that another shard refused back to the tables that they left."""
    run_alone(alias, _GO_BACK.format(puts=_of_each(_PUT)), [list(departure_ids)])


def forget_departures(alias: str, departure_ids: Collection[int]) -> None:
    """Delete arrived departures in the old shard."""
    run_alone(alias, _FORGET_DEPARTURES, [list(departure_ids)])


def forget_arrivals(alias: str, departure_ids: Collection[int]) -> None:
    """Record in the new shard that the old one has deleted these, and delete old records."""
    run_alone(alias, _FORGET_ARRIVALS, [list(departure_ids)])
    run_alone(alias, _DELETE_FORGOTTEN, [KEPT_FOR])


def _as_json(sent: Sequence[OnItsWay]) -> str:
    return "[" + ",".join(f'{{"id": {one.departure_id}, "rows": {one.rows}}}' for one in sent) + "]"
