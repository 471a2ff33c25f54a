"""Add many jobs in the transaction of the caller: all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pulse_django import conf
from pulse_django.exceptions import InvalidJob
from pulse_django.store.copy_text import Json, copied, copied_columns, copied_json, copy_from
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import copy_joined, joined, run_joined
from pulse_django.words.declared_options import COLUMNS, with_settings
from pulse_django.words.job_options import Head, NewJob, Payload, run_at_or_delay
from pulse_django.words.needs import Place
from pulse_django.words.uniqueness import Unique

from . import unique
from .batches import join_many
from .enqueue import get_or_enqueue_alone
from .unique import TaskKey

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
    once = unique.folded([encoded[place] for place in keyed])
    with joined(jobs.write_alias):
        found = _insert_unique(jobs, once.jobs, progress)
        ids = dict(zip(keyed, (found[place] for place in once.places), strict=True))
        done = len(ids)
        others = _enqueue_all(
            jobs, [encoded[place] for place in plain], progress and (lambda written: progress(done + written))
        )
    ids |= zip(plain, others, strict=True)
    return [ids[place] for place in range(len(encoded))]


def _insert_unique(jobs: JobReader, encoded: Sequence[Encoded], progress: Callable[[int], object] | None) -> list[int]:
    """Insert jobs of different keys, and return the id of each key's job."""
    ids = take_ids(jobs.write_alias, len(encoded))
    in_order = sorted(zip(ids, encoded, strict=True), key=lambda one: unique.key_of(one[1][0]))
    found: dict[TaskKey, int] = {}
    for chunk in _chunks(one for _, one in in_order):
        heads = [new.head for new, _ in chunk]
        distinct = list(dict.fromkeys(heads))
        names, texts = unique.spelt(_columns_of(jobs, distinct))
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
    heads = {job: new.head for job, new in {id(new): new for new, _ in chunk}.items()}
    distinct = list(dict.fromkeys(heads.values()))
    columns, texts = copied_columns(_columns_of(jobs, distinct))
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


def _columns_of(jobs: JobReader, heads: Sequence[Head]) -> list[dict[str, Any]]:
    settings = conf.current()
    rows = [head.by_column() | dict(zip(COLUMNS, with_settings(head.options, settings), strict=True)) for head in heads]
    if any(head.place is not None for head in heads):  # what is NULL in one row would be in all
        for row, head in zip(rows, heads, strict=True):
            row |= (head.place or Place()).by_column()
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
