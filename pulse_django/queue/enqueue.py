"""Add jobs in the transaction of the caller. Without its commit, there is no job."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse_django import conf
from pulse_django.exceptions import InvalidJob

from .capability import Single, provided
from .database.job_queries import JobReader
from .database.transactions import (
    Json,
    Row,
    copied,
    copied_json,
    copy_from,
    copy_joined,
    joined,
    run_joined,
    run_often,
)
from .words.display import without
from .words.job_options import NewJob, Payload, is_ready, run_at_or_delay
from .words.options import COLUMNS, OPTIONS, with_settings

if TYPE_CHECKING:
    from .job import JobRow


_INTO = "INSERT INTO pulse_django_job_hot"
_NEW = "RETURNING id, created_at, next_run_at, {expires_at}, true"
# A row that an INSERT has written has no xmax. A row that ON CONFLICT has locked and changed has one.
_NEW_OR_CHANGED = "RETURNING id, created_at, next_run_at, {expires_at}, xmax = 0"

_EXPIRES = ("expires", "expires_in")
# The values of next_run_at and expires_at. A job that is due at once gets the default of next_run_at. Delays are in
# seconds, because the length of an interval of days depends on the session's time zone.
_INSTANT = "%s::timestamptz"
_DELAY = "clock_timestamp() + %s::float8 * interval '1 second'"
_FROM_NOW = {"run_after": "run_in", "expires": "expires_in"}
_VALUES = dict.fromkeys(_FROM_NOW, _INSTANT) | dict.fromkeys(_FROM_NOW.values(), _DELAY)
_COLUMNS = dict.fromkeys(("run_after", "run_in"), "next_run_at") | dict.fromkeys(_EXPIRES, "expires_at")


def enqueue(jobs: JobReader, new: NewJob) -> JobRow:
    """Add one job in the caller's transaction and return it. Without its commit, there is no job.

    If a capability finds an existing job to use instead, as for a unique key, return that job.
    """
    return get_or_enqueue(jobs, new)[0]


def get_or_enqueue(jobs: JobReader, new: NewJob) -> tuple[JobRow, bool]:
    """Do as ``enqueue()``, and also return whether the job is new."""
    added = add(jobs, new)
    return (added.job, True) if isinstance(added, Added) else (added, False)


def add(jobs: JobReader, new: NewJob) -> Added | JobRow:
    """Add one job in the caller's transaction. Return it as ``Added``, or the existing job that is used instead."""
    around = provided(AroundInsert)
    if around is not None and getattr(new, around.field) is not None and around.concerns(new):
        return around.one(jobs, new, _add)
    return _add(jobs, new)


class Clauses(NamedTuple):
    """The clauses of the INSERT of a job, with their parameters."""

    take: str = ""  # a CTE ``taken``, with the id of the job if the job may be inserted
    take_params: tuple[Any, ...] = ()
    conflict: str = ""  # ON CONFLICT, if another job has the key
    conflict_params: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return without(self, "take_params", "conflict_params")


class Admission(Single):
    """Admits a new job, or finds an existing job to use instead."""

    fields: tuple[str, ...]  # of NewJob: used for jobs with a value in one of them

    @abstractmethod
    def columns(self, new: NewJob) -> dict[str, Any]:
        """Return the values of its columns in the row of the job."""

    @abstractmethod
    def clauses(self, alias: str, new: NewJob) -> Clauses: ...
    @abstractmethod
    def inserted(self, jobs: JobReader, new: NewJob, job_id: int) -> None:
        """Note a job that was inserted."""

    @abstractmethod
    def changed(self, jobs: JobReader, job_id: int) -> JobRow:
        """Return the existing job, which ON CONFLICT has changed."""

    @abstractmethod
    def kept(self, jobs: JobReader, new: NewJob) -> JobRow | None:
        """Return the existing job, unchanged. None: it is gone, so insert again."""

    @abstractmethod
    def many(
        self, jobs: JobReader, encoded: Sequence[tuple[NewJob, Payload]], progress: Callable[[int], object] | None
    ) -> list[int]:
        """Insert a list of jobs, and return their ids or those of existing jobs."""


class AroundInsert(Single):
    """Wraps the INSERT of jobs, in one transaction. Used for jobs that belong to a batch or a workflow."""

    field: str  # of NewJob: only jobs with a value in it may be concerned

    @abstractmethod
    def concerns(self, new: NewJob) -> bool: ...
    @abstractmethod
    def one(
        self, jobs: JobReader, new: NewJob, insert: Callable[[JobReader, NewJob], Added | JobRow]
    ) -> Added | JobRow: ...
    @abstractmethod
    def many(
        self, jobs: JobReader, new_jobs: Sequence[NewJob], insert: Callable[[], list[int]], *, are_new: bool
    ) -> list[int]:
        """Insert jobs, some of which are concerned. ``are_new``: no unique key can find an existing job."""


class Added:
    """A job that was added. Most callers only need its id, and a model has fifty fields."""

    def __init__(self, jobs: JobReader, new: NewJob, values: dict[str, Any], row: Row) -> None:
        """``values`` were sent to the database, and ``row`` is its answer."""
        self.id: int = row[0]
        self.created_at: datetime = row[1]
        self.values = values
        self._jobs, self._new, self._row = jobs, new, row

    @property
    def args(self) -> Any:
        return json.loads(self.values["args"])

    @property
    def kwargs(self) -> Any:
        return json.loads(self.values["kwargs"])

    @property
    def job(self) -> JobRow:
        """Return the model, with the values that were sent and the defaults of the table."""
        new, jobs, (job_id, created_at, next_run_at, expires_at, _) = self._new, self._jobs, self._row
        values = {
            **self.values,
            "id": job_id,
            "args": self.args,
            "kwargs": self.kwargs,
            "search_terms": self.values.get("search_terms", []),
            "next_run_at": next_run_at,
            "expires_at": expires_at,
            "tags": list(new.tags),
            "meta": None if new.meta is None else json.loads(new.meta),
            "on_dead": None if new.on_dead is None else json.loads(new.on_dead),
            "lane_key": new.lane_key,
            "ready": is_ready(new.lane_key, new.run_after),
            "created_at": created_at,
        }
        blank = _blank(jobs.model)
        # Several times as fast as with keyword arguments, for which Django loops over all fields.
        row = [values.get(name, default) for name, default in blank.items()]
        job: JobRow = jobs.model.from_db(jobs.write_alias, blank, row)
        return job


def _add(jobs: JobReader, new: NewJob) -> Added | JobRow:
    admits = _admits(new)
    settings = conf.current()
    payload = new.encoded(settings.max_payload_bytes)
    values: dict[str, Any] = {"args": payload.args, "kwargs": payload.kwargs, "payload_bytes": payload.size}
    if payload.terms:
        values["search_terms"] = list(payload.terms)
    if new.parent_id is not None:
        values["parent_id"] = new.parent_id
    if new.trace is not None:
        values["trace"] = new.trace
    values |= _shared_of_alike(new, settings, admits)
    while not (rows := _insert(jobs, new, values, admits)):
        if admits is not None and (kept := admits.kept(jobs, new)) is not None:
            return kept
    [row] = rows
    job_id, *_, is_new = row
    if admits is not None:
        if not is_new:
            return admits.changed(jobs, job_id)
        admits.inserted(jobs, new, job_id)
    return Added(jobs, new, values, row)


def _shared_of_alike(new: NewJob, settings: conf.PulseSettings, admits: Admission | None) -> Mapping[str, Any]:
    """Return the values that are equal for jobs that differ only in arguments, parent and trace."""
    if new.alike is None:
        return _shared(new, settings, admits)
    if not new.alike:
        new.alike.update(_shared(new, settings, admits))
    return new.alike


# Columns that are true by default. Only false is sent.
_TRUE = {"ready", *(option.column for option in OPTIONS.values() if option.default is True)}


def _shared(new: NewJob, settings: conf.PulseSettings, admits: Admission | None) -> Mapping[str, Any]:
    """Return the values of a job to send, without its arguments, its parent and its trace."""
    row = with_settings(new.by_column(), settings)
    row |= {"tags": list(new.tags) or None, "lane_key": new.lane_key or None}
    options = {column: row.pop(column) for column in (*COLUMNS, "ready")}
    row |= {} if new.place is None else new.place.by_column()
    row |= options if admits is None else admits.columns(new) | options
    sent: dict[str, Any] = {}
    for name, value in row.items():
        if name in _FROM_NOW and isinstance(value, timedelta):
            name, value = _FROM_NOW[name], value.total_seconds() or None
        # Most jobs need 8 of some 25 columns. A value that is not sent costs nothing to encode, parse or plan.
        if value is not None and value is not (name in _TRUE) and name not in ("parent_id", "trace"):
            sent[name] = value
    return sent


@lru_cache(maxsize=4)
def _blank(model: type[JobRow]) -> dict[str, Any]:
    """Return the default of each field of a new job."""
    return {field.attname: field.get_default() for field in model._meta.concrete_fields}


def _admits(new: NewJob) -> Admission | None:
    one = provided(Admission)
    for name in one.fields if one is not None else ():
        if getattr(new, name) is not None:
            return one
    return None


def has_key(new: NewJob) -> bool:
    """Return whether an enqueue may find an existing job instead of adding this one."""
    return _admits(new) is not None


def _insert(jobs: JobReader, new: NewJob, values: Mapping[str, Any], admits: Admission | None) -> list[Row]:
    names, params = tuple(values), tuple(values.values())
    if admits is None:
        return run_often(jobs.write_alias, _enqueue(names), params)
    clauses = admits.clauses(jobs.write_alias, new)
    sql = _enqueue(names, take=clauses.take, conflict=clauses.conflict)
    return run_joined(jobs.write_alias, sql, (*clauses.take_params, *params, *clauses.conflict_params))


@lru_cache(maxsize=256)
def _enqueue(names: tuple[str, ...], *, take: str = "", conflict: str = "") -> str:
    """Return the statement that inserts a job with values of these names. Other columns get the table's defaults.

    ``take`` and ``conflict`` are as in ``Clauses``.
    """
    columns = ", ".join(_COLUMNS.get(name, name) for name in names)
    values = ", ".join(_VALUES.get(name, "%s") for name in names)
    # A role that may only enqueue needs no right to read this column, unless its jobs expire.
    expires_at = "expires_at" if not set(_EXPIRES).isdisjoint(names) else "NULL"
    new, new_or_changed = (text.format(expires_at=expires_at) for text in (_NEW, _NEW_OR_CHANGED))
    if take:
        return f"{take}{_INTO} (id, {columns}) SELECT job_id, {values} FROM taken {new}"  # noqa: S608
    if conflict:
        return f"{_INTO} AS job ({columns}) VALUES ({values}) {conflict} {new_or_changed}"
    return f"{_INTO} ({columns}) VALUES ({values}) {new}"


# Add many jobs in the transaction of the caller: all of them or none.


Encoded = tuple[NewJob, Payload]

# Jobs in one statement. Larger chunks save little, and take memory of the caller and the server for longer.
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

    All jobs are read and encoded before the transaction begins. ``progress`` is called inside it, with the number
    of jobs written so far.
    """
    limit = conf.current().max_payload_bytes
    encoded = [(new, new.encoded(limit)) for new in new_jobs]
    admits = next((admits for new, _ in encoded if (admits := _admits(new)) is not None), None)
    insert = partial(enqueue_all if admits is None else admits.many, jobs, encoded, progress)
    return _enclosed(jobs, [new for new, _ in encoded], insert, are_new=admits is None)


def _enclosed(jobs: JobReader, new_jobs: list[NewJob], insert: Callable[[], list[int]], *, are_new: bool) -> list[int]:
    around = provided(AroundInsert)
    return insert() if around is None else around.many(jobs, new_jobs, insert, are_new=are_new)


def enqueue_alike(
    jobs: JobReader,
    new: NewJob,
    arguments: Iterable[tuple[Sequence[Any], Mapping[str, Any]]],
    *,
    progress: Callable[[int], object] | None = None,
) -> list[int]:
    """Add this job once for each of these arguments, which replace its own. Works as ``enqueue_many``."""
    if (admits := _admits(new)) is not None:
        [name, *_] = [name for name in admits.fields if getattr(new, name) is not None]
        raise InvalidJob(
            f"{name}: one key cannot be used for many jobs; enqueue them one by one, each with its own key"
        )
    limit = conf.current().max_payload_bytes
    encoded = [(new, new.encoded_with(args, kwargs, limit)) for args, kwargs in arguments]
    if not encoded:
        return []
    insert = partial(enqueue_all, jobs, encoded, progress)
    return _enclosed(jobs, [new] * len(encoded), insert, are_new=True)


def enqueue_all(
    jobs: JobReader,
    encoded: Iterable[Encoded],
    progress: Callable[[int], object] | None,
    *,
    one_by_one: tuple[str, ...] = (),
) -> list[int]:
    """Add all of these jobs. If a job of a chunk has one of the fields ``one_by_one``, add that chunk one by one."""
    chunks = list(in_chunks(encoded))
    ids: list[int] = []
    with joined(jobs.write_alias):
        for chunk in chunks:
            if any(getattr(new, name) is not None for name in one_by_one for new, _ in chunk):
                ids += [_add(jobs, new).id for new, _ in chunk]
            else:
                taken = take_ids(jobs.write_alias, len(chunk))
                _copy(jobs, chunk, taken)
                ids += taken
            if progress is not None:
                progress(len(ids))
    return ids


def in_chunks(encoded: Iterable[Encoded]) -> Iterator[list[Encoded]]:
    """Split jobs into chunks that are bounded in rows and in bytes."""
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
    """Return ids for new jobs."""
    return [job_id for (job_id,) in run_joined(alias, _TAKE_IDS, [count])]


def copy_with_ids(jobs: JobReader, new_jobs: Sequence[tuple[NewJob, int]]) -> None:
    """Write jobs whose ids are given and whose unique keys are taken."""
    limit = conf.current().max_payload_bytes
    _copy(jobs, [(new, new.encoded(limit)) for new, _ in new_jobs], [job_id for _, job_id in new_jobs])


def _copy(jobs: JobReader, chunk: Sequence[Encoded], ids: Sequence[int]) -> None:
    """Write many jobs by COPY, which takes the server a quarter less time than an INSERT."""
    columns, shared = columns_of(jobs, chunk, lambda row: "\t".join(map(copied, row.values())))
    own = ["id", "args", "kwargs", "payload_bytes"]
    lines = [
        f"{job_id}\t{copied_json(one.args)}\t{copied_json(one.kwargs)}\t{one.size}\t{shared[id(new)]}"
        for job_id, (new, one) in zip(ids, chunk, strict=True)
    ]
    if "search_terms" in columns:
        lines = [f"{line}\t{copied(one.terms or None)}" for line, (_, one) in zip(lines, chunk, strict=True)]
    into = copy_from("pulse_django_job_hot", [*own, *columns])
    copy_joined(jobs.write_alias, into, _encoded("".join(f"{line}\n" for line in lines)))


def _encoded(lines: str) -> bytes:
    try:
        return lines.encode()
    except UnicodeEncodeError:
        raise InvalidJob("a name, a trace or a mask contains a lone surrogate") from None  # the error has all lines


def columns_of(
    jobs: JobReader, chunk: Sequence[Encoded], spell: Callable[[dict[str, Any]], str]
) -> tuple[list[str], dict[int, str]]:
    """Return the columns in which any of these jobs has a value, and the text of each job by the ``id()`` of
    ``NewJob``.

    Jobs that are enqueued together mostly share everything but their arguments, so the shared text is made once. Search
    terms are the last column, if there are any, and not in the text.
    """
    news = {id(new): new for new, _ in chunk}
    heads = {key: new.head for key, new in news.items()}
    distinct = {head: news[key] for key, head in heads.items()}
    rows = _rows_of(jobs, list(distinct.values()))
    columns = [name for name in rows[0] if any(row[name] is not None for row in rows)]
    texts = (spell({name: row[name] for name in columns}) for row in rows)
    text_of = dict(zip(distinct, texts, strict=True))
    columns += ["search_terms"] if any(one.terms for _, one in chunk) else []
    return columns, {key: text_of[head] for key, head in heads.items()}


def _rows_of(jobs: JobReader, news: Sequence[NewJob]) -> list[dict[str, Any]]:
    settings = conf.current()
    rows = [with_settings(new.by_column(), settings) for new in news]
    if place := next((new.place for new in news if new.place is not None), None):
        for row, new in zip(rows, news, strict=True):  # each row has the same columns
            row |= (new.place or type(place)()).by_column()
    for row in rows:
        for column in ("meta", "on_dead"):
            row[column] = None if row[column] is None else Json(row[column])
    _set_instants(jobs, rows, "next_run_at", [run_at_or_delay(row.pop("run_after")) for row in rows])
    _set_instants(jobs, rows, "expires_at", [run_at_or_delay(row.pop("expires")) for row in rows])
    return rows


def _set_instants(
    jobs: JobReader, rows: Sequence[dict[str, Any]], column: str, instants: Sequence[tuple[datetime | None, timedelta]]
) -> None:
    """Set a column to an instant, or to now plus a delay. If no job has either, leave it to the table's default."""
    if not any(instant or delay for instant, delay in instants):
        return
    delays = run_joined(jobs.write_alias, _IN, [[delay.total_seconds() for _, delay in instants]])
    for row, (instant, delay), (in_delay,) in zip(rows, instants, delays, strict=True):
        row[column] = instant or (in_delay if delay or column == "next_run_at" else None)
