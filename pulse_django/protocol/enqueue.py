"""Add jobs in the transaction of the caller: no commit, no job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pulse_django import conf
from pulse_django.exceptions import InvalidJob
from pulse_django.store.copy_text import copied_columns, copied_json, copy_from
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import Row, copy_joined, joined, run_joined
from pulse_django.words.declared_options import COLUMNS, values_of, with_settings
from pulse_django.words.job_options import Head, NewJob, Payload, run_at_or_delay

if TYPE_CHECKING:
    from pulse_django.models import Job

Encoded = tuple[NewJob, Payload]

# One statement's worth. Larger chunks save little and hold the caller's memory and the server's longer.
ENQUEUE_CHUNK = 5_000

ENQUEUE_BYTES = 16_000_000

_OF_ITS_OWN = "task, queue, priority, args, kwargs, payload_bytes, next_run_at, parent_id, trace, masked"
_INTO = "INSERT INTO pulse_django_job_hot"

# What next_run_at gets. A job that is due at once gets the default of that column. Seconds, because an interval of days
# is as long as the calendar of the session's time zone has it.
_DUE = {"run_at": "%s::timestamptz", "delay": "clock_timestamp() + %s::float8 * interval '1 second'"}

# It waits for a rival who has the key and has not committed: if it rolls back, the job is inserted after all. In
# neither case does the caller's transaction abort.
_TAKE_KEY = """WITH taken AS (
    INSERT INTO pulse_django_key (task, key, job_id)
    VALUES (%s, %s, pg_catalog.nextval('pulse_django_job_id_seq'::regclass))
    ON CONFLICT (task, key) DO NOTHING
    RETURNING job_id
)
"""

_WHO_HAS_KEY = "SELECT job_id FROM pulse_django_key WHERE task::text = %s AND key::text = %s"

# The job of such a key was deleted by hand. This is a separate statement because its snapshot must contain the job of
# every key that it contains.
_FREE_ORPHANED_KEY = """
DELETE FROM pulse_django_key AS key
WHERE key.task::text = %s AND key.key::text = %s AND NOT EXISTS (SELECT FROM pulse_django_job WHERE id = key.job_id)
RETURNING key.job_id
"""

_TAKE_IDS = "SELECT pg_catalog.nextval('pulse_django_job_id_seq'::regclass) FROM pg_catalog.generate_series(1, %s)"
_IN = """
SELECT pg_catalog.to_char(
    (clock_timestamp() + delay.seconds * interval '1 second') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'
)
FROM pg_catalog.unnest(%s::float8[]) WITH ORDINALITY AS delay (seconds, place)
ORDER BY delay.place
"""


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
    values = {
        "id": job_id,
        "task": new.task,
        "queue": new.queue,
        "priority": new.priority,
        "args": json.loads(payload.args),
        "kwargs": json.loads(payload.kwargs),
        "payload_bytes": payload.size,
        "next_run_at": next_run_at,
        "parent_id": new.parent_id,
        "trace": new.trace,
        "masked": new.masked,
        "created_at": created_at,
        **dict(zip(COLUMNS, options, strict=True)),
    }
    blank = _blank(jobs.model)
    # Several times as fast as by name, because Django looks at each field again.
    job: Job = jobs.model.from_db(jobs.write_alias, blank, (blank | values).values())
    return job, True


@lru_cache(maxsize=4)
def _blank(model: type[Job]) -> dict[str, Any]:
    """Return what the fields of a new job are by default."""
    return {field.attname: field.get_default() for field in model._meta.concrete_fields}


def _insert(jobs: JobReader, new: NewJob, options: tuple[Any, ...], payload: Payload) -> list[Row]:
    run_at, delay = run_at_or_delay(new.run_after)
    values = {
        "task": new.task,
        "queue": new.queue,
        "priority": new.priority,
        "args": payload.args,
        "kwargs": payload.kwargs,
        "payload_bytes": payload.size,
        "run_at": run_at,
        "delay": delay.total_seconds() or None,
        "parent_id": new.parent_id,
        "trace": new.trace,
        "masked": new.masked,
        **dict(zip(COLUMNS, options, strict=True)),
    }
    # Of eighteen columns most jobs need eight, and what is not sent is not encoded, parsed or planned.
    sent = {name: value for name, value in values.items() if value is not None and value is not False}
    if new.idempotency_key is None:
        return run_joined(jobs.write_alias, _enqueue(tuple(sent)), tuple(sent.values()))
    key = (new.task, new.idempotency_key)
    return run_joined(jobs.write_alias, _enqueue(tuple(sent), has_key=True), (*key, *sent.values()))


@lru_cache(maxsize=256)
def _enqueue(names: tuple[str, ...], *, has_key: bool = False) -> str:
    """Return the statement that inserts a job with values of these names. The others have the table's defaults."""
    columns = ", ".join("next_run_at" if name in _DUE else name for name in names)
    values = ", ".join(_DUE.get(name, "%s") for name in names)
    returning = "RETURNING id, created_at, next_run_at"
    if has_key:
        return f"{_TAKE_KEY}{_INTO} (id, {columns}) SELECT job_id, {values} FROM taken {returning}"  # noqa: S608
    return f"{_INTO} ({columns}) VALUES ({values}) {returning}"


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
                ids += _copy(jobs, chunk)
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


def _copy(jobs: JobReader, chunk: Sequence[Encoded]) -> list[int]:
    """Write many jobs by COPY, which takes the server three quarters of the time of an INSERT, and return their ids.

    Jobs that are enqueued together mostly share all but their arguments. The text of what they share is made once.
    """
    heads = {job: new.head for job, new in {id(new): new for new, _ in chunk}.items()}
    distinct = list(dict.fromkeys(heads.values()))
    columns, texts = copied_columns(_columns_of(jobs, distinct))
    text_of = dict(zip(distinct, texts, strict=True))
    shared = {job: text_of[head] for job, head in heads.items()}
    ids = [job_id for (job_id,) in run_joined(jobs.write_alias, _TAKE_IDS, [len(chunk)])]
    lines = [
        f"{job_id}\t{copied_json(one.args)}\t{copied_json(one.kwargs)}\t{one.size}\t{shared[id(new)]}\n"
        for job_id, (new, one) in zip(ids, chunk, strict=True)
    ]
    into = copy_from("pulse_django_job_hot", ["id", "args", "kwargs", "payload_bytes", *columns])
    copy_joined(jobs.write_alias, into, _encoded("".join(lines)))
    return ids


def _encoded(lines: str) -> bytes:
    try:
        return lines.encode()
    except UnicodeEncodeError:
        raise InvalidJob("a name, a trace or a mask contains a lone surrogate") from None  # its error has all lines


def _columns_of(jobs: JobReader, heads: Sequence[Head]) -> list[dict[str, Any]]:
    settings = conf.current()
    rows = [head.by_column() | dict(zip(COLUMNS, with_settings(head.options, settings), strict=True)) for head in heads]
    due = [run_at_or_delay(row.pop("run_after")) for row in rows]
    if not any(run_at or delay for run_at, delay in due):
        return rows  # the table's default says when each is due
    delays = run_joined(jobs.write_alias, _IN, [[delay.total_seconds() for _, delay in due]])
    for row, (run_at, _), (in_delay,) in zip(rows, due, delays, strict=True):
        row["next_run_at"] = run_at or in_delay
    return rows
