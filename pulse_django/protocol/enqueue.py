"""Add jobs in the transaction of the caller: no commit, no job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.exceptions import InvalidJob
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import Row, joined, run_joined
from pulse_django.words.declared_options import COLUMNS, JOB_OPTIONS, values_of, with_settings
from pulse_django.words.job_options import Head, NewJob, Payload, run_at_or_delay
from pulse_django.words.option_kinds import Duration, Flag, Text, Whole

from .statements import array, quoted

if TYPE_CHECKING:
    from pulse_django.models import Job

Encoded = tuple[NewJob, Payload]

# One statement's worth. Larger chunks save little and hold the caller's memory and the server's longer.
ENQUEUE_CHUNK = 5_000

ENQUEUE_BYTES = 16_000_000

_OF_ITS_OWN = "task, queue, priority, args, kwargs, payload_bytes, next_run_at, parent_id, trace, masked"
_ENQUEUE_INTO = f"INSERT INTO pulse_django_job_hot ({', '.join([_OF_ITS_OWN, *COLUMNS])})"
_RETURNING = "RETURNING id, created_at, next_run_at"
_ONE = f"""%s, %s, %s, %s, %s, %s, COALESCE(%s::timestamptz, clock_timestamp() + %s::interval), %s, %s, %s,
    {", ".join("%s" for _ in COLUMNS)}"""

_ENQUEUE = f"{_ENQUEUE_INTO} VALUES ({_ONE}) {_RETURNING}"

# It waits for a rival who has the key and has not committed: if it rolls back, the job is inserted after all. In
# neither case does the caller's transaction abort.
_ENQUEUE_UNLESS_KEY_IS_TAKEN = f"""
WITH taken AS (
    INSERT INTO pulse_django_key (task, key, job_id)
    VALUES (%s, %s, pg_catalog.nextval('pulse_django_job_id_seq'::regclass))
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job_id
)
INSERT INTO pulse_django_job_hot (id, {", ".join([_OF_ITS_OWN, *COLUMNS])})
SELECT job_id, {_ONE} FROM taken
{_RETURNING}
"""  # noqa: S608 - made of constants

_WHO_HAS_KEY = "SELECT job_id FROM pulse_django_key WHERE task::text = %s AND key::text = %s"

# The job of such a key was deleted by hand. This is a separate statement because its snapshot must contain the job of
# every key that it contains.
_FREE_ORPHANED_KEY = """
DELETE FROM pulse_django_key AS key
WHERE key.task::text = %s AND key.key::text = %s AND NOT EXISTS (SELECT FROM pulse_django_job WHERE id = key.job_id)
RETURNING key.job_id
"""

# How the options of many jobs are read from JSON. What is read as bigint fits the column: its bounds are checked.
_READ_AS: dict[type, tuple[str, str]] = {
    Whole: ("bigint", "head.{}"),
    Duration: ("float8", "head.{} * interval '1 second'"),
    Flag: ("boolean", "head.{}"),
    Text: ("text", "head.{}"),
}
_TYPES = ", ".join(f"{option.column} {_READ_AS[type(option.kind)][0]}" for option in JOB_OPTIONS)
_VALUES = ", ".join(_READ_AS[type(option.kind)][1].format(option.column) for option in JOB_OPTIONS)

# Jobs that are enqueued together differ in their arguments and seldom in anything else: what they share travels once.
# With fifteen keys for each, a server that could copy ten thousand rows in 80 ms took 500.
_ENQUEUE_MANY = f"""{_ENQUEUE_INTO}
SELECT
    head.task, head.queue, head.priority, payload.args::jsonb, payload.kwargs::jsonb,
    pg_catalog.octet_length(payload.args) + pg_catalog.octet_length(payload.kwargs),
    COALESCE(head.run_at, clock_timestamp() + head.delay * interval '1 second'),
    head.parent_id, head.trace, head.masked, {_VALUES}
FROM ROWS FROM (
    pg_catalog.unnest(%s::int[]), pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])
) WITH ORDINALITY AS payload (head, args, kwargs, place)
JOIN pg_catalog.json_to_recordset(%s::json) AS head (
    number int, task text, queue text, priority smallint, run_at timestamptz, delay float8,
    parent_id bigint, trace text, masked text, {_TYPES}
) ON head.number = payload.head
ORDER BY payload.place
RETURNING id
"""  # noqa: S608 - made of constants


def enqueue(jobs: JobReader, new: NewJob) -> Job:
    """Add one job in the caller's transaction and return it: no commit, no job.

    With an idempotency key that is taken, return the job that has it.
    """
    return get_or_enqueue(jobs, new)[0]


def get_or_enqueue(jobs: JobReader, new: NewJob) -> tuple[Job, bool]:
    """Do as ``enqueue()``, and say whether the job is new."""
    settings = conf.current()
    payload = new.encoded(settings.max_payload_bytes)
    options = with_settings(values_of(new), settings)
    while not (rows := _insert(jobs, new, options, payload)):
        kept = _job_with_key(jobs, new)
        if kept is not None:  # pruned in this very moment: then the key is free again
            return kept, False
    [(job_id, created_at, next_run_at)] = rows
    job: Job = jobs.model(
        id=job_id,
        task=new.task,
        queue=new.queue,
        priority=new.priority,
        args=json.loads(payload.args),
        kwargs=json.loads(payload.kwargs),
        payload_bytes=payload.size,
        next_run_at=next_run_at,
        parent_id=new.parent_id,
        masked=new.masked,
        created_at=created_at,
        **dict(zip(COLUMNS, options, strict=True)),
    )
    job._state.adding = False
    job._state.db = jobs.write_alias
    return job, True


def _insert(jobs: JobReader, new: NewJob, options: tuple[Any, ...], payload: Payload) -> list[Row]:
    params = (
        *(new.task, new.queue, new.priority, *payload, payload.size, *run_at_or_delay(new.run_after)),
        *(new.parent_id, new.trace, new.masked, *options),
    )
    if new.idempotency_key is None:
        return run_joined(jobs.write_alias, _ENQUEUE, params)
    key = (new.task, new.idempotency_key)
    return run_joined(jobs.write_alias, _ENQUEUE_UNLESS_KEY_IS_TAKEN, (*key, *params))


def _job_with_key(jobs: JobReader, new: NewJob) -> Job | None:
    """Return the job that has this key; None, and the key is free, if there is none any more."""
    key = [new.task, new.idempotency_key]
    holders = [job_id for (job_id,) in run_joined(jobs.write_alias, _WHO_HAS_KEY, key)]
    kept: Job | None = jobs.using(jobs.write_alias).filter(pk__in=holders).first()
    if kept is None:
        run_joined(jobs.write_alias, _FREE_ORPHANED_KEY, key)
    return kept


def enqueue_many(
    jobs: JobReader, new_jobs: Iterable[NewJob], *, progress: Callable[[int], object] | None = None
) -> list[int]:
    """Add all of these jobs or none, and return their ids in the order given.

    They are read and encoded before the transaction begins. ``progress`` is called inside of it, with the number
    of jobs written so far.
    """
    limit = conf.current().max_payload_bytes
    return _enqueue_all(jobs, ((new, new.encoded(limit)) for new in new_jobs), progress)


def enqueue_alike(
    jobs: JobReader,
    new: NewJob,
    arguments: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    progress: Callable[[int], object] | None = None,
) -> list[int]:
    """Add this job once for each of these arguments instead of its own, as ``enqueue_many`` would."""
    if new.idempotency_key is not None:
        raise InvalidJob(
            "idempotency_key: one key cannot be used for many jobs; enqueue them one by one, each with its own key"
        )
    limit = conf.current().max_payload_bytes
    return _enqueue_all(
        jobs, ((new, Payload.of(args, kwargs, limit, new.names, new.masked)) for args, kwargs in arguments), progress
    )


def _enqueue_all(jobs: JobReader, encoded: Iterable[Encoded], progress: Callable[[int], object] | None) -> list[int]:
    chunks = list(_chunks(encoded))
    ids: list[int] = []
    with joined(jobs.write_alias):
        for chunk in chunks:
            if any(new.idempotency_key is not None for new, _ in chunk):
                ids += [enqueue(jobs, new).pk for new, _ in chunk]
            else:
                ids += sorted(row[0] for row in _insert_many(jobs, chunk))  # identity values rise row by row
            if progress is not None:
                progress(len(ids))
    return ids


def _chunks(encoded: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    """Cut into statements that are short in rows and in bytes."""
    chunk: list[Encoded] = []
    size = 0
    for one in encoded:
        length = one[1].size
        if chunk and (len(chunk) == ENQUEUE_CHUNK or size + length > ENQUEUE_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += length
    if chunk:
        yield chunk


def _insert_many(jobs: JobReader, chunk: Sequence[Encoded]) -> list[Row]:
    numbers: dict[Head, int] = {}
    distinct = {id(new): new for new, _ in chunk}
    number_of = {one: str(numbers.setdefault(new.head, len(numbers))) for one, new in distinct.items()}
    columns = (
        [number_of[id(new)] for new, _ in chunk],
        [quoted(payload.args) for _, payload in chunk],
        [quoted(payload.kwargs) for _, payload in chunk],
    )
    settings = conf.current()
    heads = [head.to_json(number, with_settings(head.options, settings)) for head, number in numbers.items()]
    return run_joined(jobs.write_alias, _ENQUEUE_MANY, [*map(array, columns), json.dumps(heads)])
