"""Add a job in the transaction of the caller: no commit, no job."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import connections

from pulse_django import conf
from pulse_django.exceptions import AlreadyEnqueued, InvalidJob
from pulse_django.store.citus import is_for_citus
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import (
    Json,
    Row,
    copied,
    copied_columns,
    copied_json,
    copy_from,
    copy_joined,
    joined,
    run_joined,
)
from pulse_django.words.job_options import NewJob, Payload, Place, is_ready, run_at_or_delay
from pulse_django.words.options import COLUMNS, values_of, with_settings
from pulse_django.words.uniqueness import Unique

from . import unique
from .batches import join_alone, join_many
from .unique import TaskKey

if TYPE_CHECKING:
    from pulse_django.models import Job


_INTO = "INSERT INTO pulse_django_job_hot"
_NEW = "RETURNING id, created_at, next_run_at, {expires_at}, true"
# The version that an INSERT writes has no xmax. That of a row which ON CONFLICT has locked and changed has one.
_NEW_OR_CHANGED = "RETURNING id, created_at, next_run_at, {expires_at}, xmax = 0"

# What next_run_at and expires_at get. A job that is due at once gets the default of the first. Seconds, because an
# interval of days is as long as the calendar of the session's time zone has it.
_INSTANT = "%s::timestamptz"
_DELAY = "clock_timestamp() + %s::float8 * interval '1 second'"
_DUE = {"run_at": _INSTANT, "delay": _DELAY}
_EXPIRES = {"expires_at": _INSTANT, "expires_in": _DELAY}
_VALUES = _DUE | _EXPIRES
_COLUMNS = dict.fromkeys(_DUE, "next_run_at") | dict.fromkeys(_EXPIRES, "expires_at")

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
WHERE key.task::text = %s AND key.key::text = %s AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = key.job_id)
RETURNING key.job_id
"""


def enqueue(jobs: JobReader, new: NewJob) -> Job:
    """Add one job in the caller's transaction and return it: no commit, no job.

    With an idempotency key or a unique key that is taken, return the job that has it.
    """
    return get_or_enqueue(jobs, new)[0]


def get_or_enqueue(jobs: JobReader, new: NewJob) -> tuple[Job, bool]:
    """Do as ``enqueue()``, and say whether the job is new."""
    if new.place is not None and new.place.batch_id is not None:
        return join_alone(jobs, new, get_or_enqueue_alone)
    return get_or_enqueue_alone(jobs, new)


def get_or_enqueue_alone(jobs: JobReader, new: NewJob) -> tuple[Job, bool]:
    """Do so without a look at the batch."""
    settings = conf.current()
    payload = new.encoded(settings.max_payload_bytes)
    run_at, delay = run_at_or_delay(new.run_after)
    expires_at, expires_in = run_at_or_delay(new.expires)
    values: dict[str, Any] = {
        "task": new.task,
        "queue": new.queue,
        "priority": new.priority,
        "args": payload.args,
        "kwargs": payload.kwargs,
        "payload_bytes": payload.size,
        "search_terms": list(payload.terms) or None,
        "run_at": run_at,
        "delay": delay.total_seconds() or None,
        "parent_id": new.parent_id,
        "trace": new.trace,
        "masked": new.masked,
        "expires_at": expires_at,
        "expires_in": expires_in.total_seconds() or None,
        "tags": list(new.tags) or None,
        "meta": new.meta,
        "lane_key": new.lane_key or None,
        **({} if new.place is None else new.place.by_column()),
        **({} if new.unique is None else unique.columns_of(new.unique)),
        **dict(zip(COLUMNS, with_settings(values_of(new), settings), strict=True)),
    }
    while not (rows := _insert(jobs, new, values)):
        kept = _job_with_key(jobs, new)
        if kept is not None and new.unique is not None and new.unique.rule.on_conflict == "raise":
            raise AlreadyEnqueued(new.task, kept.pk)
        if kept is not None:  # over or pruned in this very moment: then the key is free again
            return kept, False
    [(job_id, created_at, next_run_at, expires_at, is_new)] = rows
    if not is_new:
        return unique.changed(jobs, job_id), False
    if new.unique is not None:
        unique.begin_windows_with_jobs(jobs, new.unique.rule, [job_id])
    values |= {
        "id": job_id,
        "args": json.loads(payload.args),
        "kwargs": json.loads(payload.kwargs),
        "search_terms": list(payload.terms),
        "next_run_at": next_run_at,
        "expires_at": expires_at,
        "tags": list(new.tags),
        "meta": None if new.meta is None else json.loads(new.meta),
        "lane_key": new.lane_key,
        "ready": is_ready(new.lane_key, new.run_after),
        "created_at": created_at,
    }
    blank = _blank(jobs.model)
    # Several times as fast as by name, because Django looks at each field again.
    row = [values.get(name, default) for name, default in blank.items()]
    job: Job = jobs.model.from_db(jobs.write_alias, blank, row)
    return job, True


@lru_cache(maxsize=4)
def _blank(model: type[Job]) -> dict[str, Any]:
    """Return what the fields of a new job are by default."""
    return {field.attname: field.get_default() for field in model._meta.concrete_fields}


def _insert(jobs: JobReader, new: NewJob, values: Mapping[str, Any]) -> list[Row]:
    # Of twenty-odd columns most jobs need eight, and what is not sent is not encoded, parsed or planned.
    sent = {name: value for name, value in values.items() if value is not None and value is not False}
    if not is_ready(new.lane_key, new.run_after):
        sent["ready"] = False
    names, params = tuple(sent), tuple(sent.values())
    if new.idempotency_key is not None:
        taken = (new.task, new.idempotency_key)
        return run_joined(jobs.write_alias, _enqueue(names, take=_TAKE_KEY), (*taken, *params))
    if new.unique is None:
        return run_joined(jobs.write_alias, _enqueue(names), params)
    key, rule = new.unique
    if rule.per is not None:
        seconds = rule.per.total_seconds()
        if is_for_citus(connections[jobs.write_alias]):
            [drawn] = run_joined(jobs.write_alias, f"SELECT {unique.NEXT_ID}", [])
            window, take = (seconds, new.task, key, *drawn, seconds), unique.TAKE_WINDOW_WITH_ID
        else:
            window, take = (seconds, new.task, key, seconds), unique.TAKE_WINDOW
        return run_joined(jobs.write_alias, _enqueue(names, take=take), (*window, *params))
    conflict = unique.conflict_of(rule)
    return run_joined(jobs.write_alias, _enqueue(names, conflict=conflict.sql), (*params, *conflict.params))


@lru_cache(maxsize=256)
def _enqueue(names: tuple[str, ...], *, take: str = "", conflict: str = "") -> str:
    """Return the statement that inserts a job with values of these names. The others have the table's defaults.

    ``take`` is a CTE ``taken`` that names the id of the job, if it may be inserted. ``conflict`` is the clause for a
    unique key that another job holds.
    """
    columns = ", ".join(_COLUMNS.get(name, name) for name in names)
    values = ", ".join(_VALUES.get(name, "%s") for name in names)
    # A role that may only enqueue need not be allowed to read the instant that most jobs do not have.
    expires_at = "expires_at" if not _EXPIRES.keys().isdisjoint(names) else "NULL"
    new, new_or_changed = (text.format(expires_at=expires_at) for text in (_NEW, _NEW_OR_CHANGED))
    if take:
        return f"{take}{_INTO} (id, {columns}) SELECT job_id, {values} FROM taken {new}"  # noqa: S608
    if conflict:
        return f"{_INTO} AS job ({columns}) VALUES ({values}) {conflict} {new_or_changed}"
    return f"{_INTO} ({columns}) VALUES ({values}) {new}"


def _job_with_key(jobs: JobReader, new: NewJob) -> Job | None:
    """Return the job that has this key; None, and the key is free, if there is none any more."""
    if new.unique is not None:
        return unique.holder(jobs, new.task, new.unique)
    key = [new.task, new.idempotency_key]
    holders = [job_id for (job_id,) in run_joined(jobs.write_alias, _WHO_HAS_KEY, key)]
    kept: Job | None = jobs.using(jobs.write_alias).filter(pk__in=holders).first()
    if kept is None:
        run_joined(jobs.write_alias, _FREE_ORPHANED_KEY, key)
    return kept


# Add many jobs in the transaction of the caller: all of them or none.


Encoded = tuple[NewJob, Payload]

# One statement's worth. Larger chunks save little and hold the caller's memory and the server's longer.
ENQUEUE_CHUNK = 5_000

ENQUEUE_BYTES = 16_000_000

_TAKE_IDS = "SELECT pg_catalog.nextval('pulse_django_job_id_seq'::regclass) FROM pg_catalog.generate_series(1, %s)"
_IN = """
SELECT pg_catalog.to_char(
    (clock_timestamp() + delay.seconds * interval '1 second') AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00'
)
FROM pg_catalog.unnest(%s::float8[]) WITH ORDINALITY AS delay (seconds, place)
ORDER BY delay.place
"""


def enqueue_many(
    jobs: JobReader, new_jobs: Iterable[NewJob], *, progress: Callable[[int], object] | None = None
) -> list[int]:
    """Add all of these jobs or none, and return their ids in the order given.

    They are read and encoded before the transaction begins. ``progress`` is called inside of it, with the number
    of jobs written so far.
    """
    limit = conf.current().max_payload_bytes
    encoded = [(new, new.encoded(limit)) for new in new_jobs]
    are_unique = any(new.unique is not None for new, _ in encoded)
    are_new = not are_unique and all(new.idempotency_key is None for new, _ in encoded)

    def enqueue_them() -> list[int]:
        return (_enqueue_unique if are_unique else _enqueue_all)(jobs, encoded, progress)

    return join_many(jobs, [new for new, _ in encoded], enqueue_them, are_new=are_new)


def enqueue_alike(
    jobs: JobReader,
    new: NewJob,
    arguments: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    progress: Callable[[int], object] | None = None,
) -> list[int]:
    """Add this job once for each of these arguments instead of its own, as ``enqueue_many`` would."""
    for name in ("idempotency_key", "unique"):
        if getattr(new, name) is not None:
            raise InvalidJob(
                f"{name}: one key cannot be used for many jobs; enqueue them one by one, each with its own key"
            )
    limit = conf.current().max_payload_bytes
    encoded = [(new, new.encoded_with(args, kwargs, limit)) for args, kwargs in arguments]
    if not encoded:
        return []
    return join_many(jobs, [new] * len(encoded), lambda: _enqueue_all(jobs, encoded, progress), are_new=True)


def _enqueue_all(jobs: JobReader, encoded: Iterable[Encoded], progress: Callable[[int], object] | None) -> list[int]:
    chunks = list(_chunks(encoded))
    ids: list[int] = []
    with joined(jobs.write_alias):
        for chunk in chunks:
            if any(new.idempotency_key is not None for new, _ in chunk):
                ids += [get_or_enqueue_alone(jobs, new)[0].pk for new, _ in chunk]
            else:
                taken = take_ids(jobs.write_alias, len(chunk))
                _copy(jobs, chunk, taken)
                ids += taken
            if progress is not None:
                progress(len(ids))
    return ids


def _enqueue_unique(jobs: JobReader, encoded: Sequence[Encoded], progress: Callable[[int], object] | None) -> list[int]:
    """Add a list of which some jobs have unique keys: those in the order of their keys, and before the others."""
    keyed = [place for place, (new, _) in enumerate(encoded) if new.unique is not None]
    plain = [place for place, (new, _) in enumerate(encoded) if new.unique is None]
    once, places = unique.folded([encoded[place] for place in keyed])
    with joined(jobs.write_alias):
        found = _insert_unique(jobs, once, progress)
        ids = dict(zip(keyed, (found[place] for place in places), strict=True))
        done = len(ids)
        rest = [encoded[place] for place in plain]
        others = _enqueue_all(jobs, rest, progress and (lambda written: progress(done + written)))
    ids |= zip(plain, others, strict=True)
    return [ids[place] for place in range(len(encoded))]


def _insert_unique(jobs: JobReader, encoded: Sequence[Encoded], progress: Callable[[int], object] | None) -> list[int]:
    """Insert jobs of different keys, and return the id of each key's job."""
    ids = take_ids(jobs.write_alias, len(encoded))
    in_order = sorted(zip(ids, encoded, strict=True), key=lambda one: unique.key_of(one[1][0]))
    found: dict[TaskKey, int] = {}
    for chunk in _chunks(one for _, one in in_order):
        heads = [new.head for new, _ in chunk]
        distinct = {head: new for head, (new, _) in zip(heads, chunk, strict=True)}
        names, texts = unique.spelt(_columns_of(jobs, list(distinct.values())))
        text_of = dict(zip(distinct, texts, strict=True))
        if any(payload.terms for _, payload in chunk):
            names = [*names, "search_terms"]
        own = [job_id for job_id, _ in in_order[len(found) : len(found) + len(chunk)]]
        rules: dict[Unique, list[unique.Row]] = {}
        for job_id, head, (new, payload) in zip(own, heads, chunk, strict=True):
            row = unique.row_of(job_id, new, payload, text_of[head])
            rules.setdefault(unique.rule_of(new), []).append(row)
        for rule, rows in rules.items():
            found |= unique.insert(jobs, rule, rows, names)
        if progress is not None:
            progress(len(found))
    return [found[unique.key_of(new)] for new, _ in encoded]


def _chunks(encoded: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    """Cut into statements that are short in rows and in bytes."""
    chunk: list[Encoded] = []
    size = 0
    for one in encoded:
        length = one[1].size + len(one[0].meta or "")
        if chunk and (len(chunk) == ENQUEUE_CHUNK or size + length > ENQUEUE_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(one)
        size += length
    if chunk:
        yield chunk


def take_ids(alias: str, count: int) -> list[int]:
    """Return ids of new jobs."""
    return [job_id for (job_id,) in run_joined(alias, _TAKE_IDS, [count])]


def copy_with_ids(jobs: JobReader, new_jobs: Sequence[tuple[NewJob, int]]) -> None:
    """Write jobs that have their ids, and whose keys are taken."""
    limit = conf.current().max_payload_bytes
    _copy(jobs, [(new, new.encoded(limit)) for new, _ in new_jobs], [job_id for _, job_id in new_jobs])


def _copy(jobs: JobReader, chunk: Sequence[Encoded], ids: Sequence[int]) -> None:
    """Write many jobs by COPY, which takes the server three quarters of the time of an INSERT.

    Jobs that are enqueued together mostly share all but their arguments. The text of what they share is made once.
    """
    jobs_of_chunk = {id(new): new for new, _ in chunk}
    heads = {job: new.head for job, new in jobs_of_chunk.items()}
    distinct = {head: jobs_of_chunk[job] for job, head in heads.items()}
    columns, texts = copied_columns(_columns_of(jobs, list(distinct.values())))
    text_of = dict(zip(distinct, texts, strict=True))
    shared = {job: text_of[head] for job, head in heads.items()}
    own = ["id", "args", "kwargs", "payload_bytes"]
    lines = [
        f"{job_id}\t{copied_json(one.args)}\t{copied_json(one.kwargs)}\t{one.size}\t{shared[id(new)]}"
        for job_id, (new, one) in zip(ids, chunk, strict=True)
    ]
    if any(one.terms for _, one in chunk):
        columns = [*columns, "search_terms"]
        lines = [f"{line}\t{copied(one.terms or None)}" for line, (_, one) in zip(lines, chunk, strict=True)]
    into = copy_from("pulse_django_job_hot", [*own, *columns])
    copy_joined(jobs.write_alias, into, _encoded("".join(f"{line}\n" for line in lines)))


def _encoded(lines: str) -> bytes:
    try:
        return lines.encode()
    except UnicodeEncodeError:
        raise InvalidJob("a name, a trace or a mask contains a lone surrogate") from None  # its error has all lines


def _columns_of(jobs: JobReader, news: Sequence[NewJob]) -> list[dict[str, Any]]:
    settings = conf.current()
    rows = [new.by_column() | dict(zip(COLUMNS, with_settings(values_of(new), settings), strict=True)) for new in news]
    if any(new.place is not None for new in news):  # what is NULL in one row would be in all
        for row, new in zip(rows, news, strict=True):
            row |= (new.place or Place()).by_column()
    for row in rows:
        row["meta"] = None if row["meta"] is None else Json(row["meta"])
    _set_instants(jobs, rows, "next_run_at", [run_at_or_delay(row.pop("run_after")) for row in rows])
    _set_instants(jobs, rows, "expires_at", [run_at_or_delay(row.pop("expires")) for row in rows])
    return rows


def _set_instants(
    jobs: JobReader, rows: Sequence[dict[str, Any]], column: str, instants: Sequence[tuple[datetime | None, timedelta]]
) -> None:
    """Set a column to an instant, or to now plus a delay. If no job has either, the default of the table holds."""
    if not any(instant or delay for instant, delay in instants):
        return
    delays = run_joined(jobs.write_alias, _IN, [[delay.total_seconds() for _, delay in instants]])
    for row, (instant, delay), (in_delay,) in zip(rows, instants, delays, strict=True):
        row[column] = instant or (in_delay if delay or column == "next_run_at" else None)
