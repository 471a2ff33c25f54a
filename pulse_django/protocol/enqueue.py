"""Add a job in the transaction of the caller: no commit, no job."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from django.db import connections

from pulse_django import conf
from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.store.citus import is_for_citus
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import Row, run_joined
from pulse_django.words.declared_options import COLUMNS, values_of, with_settings
from pulse_django.words.job_options import NewJob, Payload, is_ready, run_at_or_delay

from . import unique
from .batches import join_alone

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
    options = with_settings(values_of(new), settings)
    while not (rows := _insert(jobs, new, options, payload)):
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
    values = {
        "id": job_id,
        "task": new.task,
        "queue": new.queue,
        "priority": new.priority,
        "args": json.loads(payload.args),
        "kwargs": json.loads(payload.kwargs),
        "payload_bytes": payload.size,
        "search_terms": list(payload.terms),
        "next_run_at": next_run_at,
        "parent_id": new.parent_id,
        "trace": new.trace,
        "masked": new.masked,
        "expires_at": expires_at,
        "tags": list(new.tags),
        "meta": None if new.meta is None else json.loads(new.meta),
        "lane_key": new.lane_key,
        "ready": is_ready(new.lane_key, new.run_after),
        "created_at": created_at,
        **({} if new.place is None else new.place.by_column()),
        **({} if new.unique is None else unique.columns_of(new.unique)),
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
    expires_at, expires_in = run_at_or_delay(new.expires)
    values = {
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
        **dict(zip(COLUMNS, options, strict=True)),
    }
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
