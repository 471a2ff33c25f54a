"""Add jobs in the transaction of the caller: no commit, no job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.exceptions import InvalidJob
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import Row, joined, run_joined
from pulse_django.words.job_options import (
    Head,
    NewJob,
    Payload,
)

from .statements import array, quoted

if TYPE_CHECKING:
    from pulse_django.models import Job

Encoded = tuple[NewJob, Payload]

# One statement's worth. Larger chunks save little and hold the caller's memory and the server's longer.
ENQUEUE_CHUNK = 5_000

ENQUEUE_BYTES = 16_000_000

_ENQUEUE_INTO = """
INSERT INTO pulse_django_job
    (
        task, queue, priority, args, kwargs, payload_bytes, next_run_at, max_attempts, lease_ttl, timeout, stall_after,
        max_losses, free_losses, parent_id, idempotency_key, trace, masked
    )
"""

_ENQUEUE = f"""{_ENQUEUE_INTO}
VALUES (
    %s, %s, %s, %s, %s, %s, COALESCE(%s::timestamptz, clock_timestamp() + %s::interval),
    %s, %s, %s, %s, %s, %s, %s, %s, %s, %s
)
{{on_conflict}}
RETURNING id, created_at, next_run_at
"""

# It waits for a rival who has the key and has not committed: if it rolls back, the job is inserted after all. In
# neither case does the caller's transaction abort.
_UNLESS_THE_KEY_IS_TAKEN = "ON CONFLICT (task, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING"

# Jobs that are enqueued together differ in their arguments and seldom in anything else: what they share travels once.
# With fifteen keys for each, a server that could copy ten thousand rows in 80 ms took 500.
_ENQUEUE_MANY = f"""{_ENQUEUE_INTO}
SELECT
    head.task, head.queue, head.priority, payload.args::jsonb, payload.kwargs::jsonb,
    pg_catalog.octet_length(payload.args) + pg_catalog.octet_length(payload.kwargs),
    COALESCE(head.run_at, clock_timestamp() + head.delay * interval '1 second'),
    COALESCE(head.max_attempts, %s),
    head.lease_ttl * interval '1 second', head.timeout * interval '1 second', head.stall_after * interval '1 second',
    head.max_losses, head.free_losses, head.parent_id, head.idempotency_key, head.trace,
    head.masked
FROM ROWS FROM (
    pg_catalog.unnest(%s::int[]), pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])
) WITH ORDINALITY AS payload (head, args, kwargs, place)
JOIN pg_catalog.json_to_recordset(%s::json) AS head (
    number int, task text, queue text, priority smallint, run_at timestamptz, delay float8, max_attempts int,
    lease_ttl float8, timeout float8, stall_after float8, max_losses smallint, free_losses boolean,
    parent_id bigint, idempotency_key text, trace text, masked text
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
    while not (rows := _insert(jobs, new.head, payload)):
        kept: Job | None = (
            jobs.using(jobs.write_alias).filter(task=new.task, idempotency_key=new.idempotency_key).first()
        )
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
        max_attempts=settings.max_attempts if new.max_attempts is None else new.max_attempts,
        lease_ttl=new.lease_ttl,
        timeout=new.timeout,
        stall_after=new.stall_after,
        parent_id=new.parent_id,
        idempotency_key=new.idempotency_key,
        masked=new.masked,
        created_at=created_at,
    )
    job._state.adding = False
    job._state.db = jobs.write_alias
    return job, True


def _insert(jobs: JobReader, head: Head, payload: Payload) -> list[Row]:
    run_at, delay = head.run_at_or_delay
    own = (
        head.max_attempts or conf.current().max_attempts,
        *(head.lease_ttl, head.timeout, head.stall_after, head.max_losses, head.free_losses, head.parent_id),
        *(head.idempotency_key, head.trace, head.masked),
    )
    on_conflict = "" if head.idempotency_key is None else _UNLESS_THE_KEY_IS_TAKEN
    params = (head.task, head.queue, head.priority, *payload, payload.size, run_at, delay, *own)
    return run_joined(jobs.write_alias, _ENQUEUE.format(on_conflict=on_conflict), params)


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
    heads = json.dumps([head.to_json(number) for head, number in numbers.items()])
    return run_joined(jobs.write_alias, _ENQUEUE_MANY, [conf.current().max_attempts, *map(array, columns), heads])
