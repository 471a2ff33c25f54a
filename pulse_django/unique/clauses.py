"""Admit one job for each unique key: the clauses of the statements, and the holder of a key.

The row of an unfinished job holds its key: a partial unique index refuses a second one. Every end of the job frees the
key, because it sets ``finished_at`` or deletes the row. There is no other lock, so none can be left behind.

A key that is held until the start is free from the first claim on: the index leaves out jobs with ``attempts``, which
never decrease. A job that has started does not get the key again, so its retries do not conflict with another job.

An expired job no longer holds its key: a call with this key ends it and is enqueued (``expire``).

With ``per``, a row of ``pulse_django_window`` says until when no other job is enqueued, however the first one ends.

At READ COMMITTED, none of these statements makes the caller's transaction fail. Each waits for another transaction
that has the key and has not committed: if that rolls back, the job is enqueued after all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from datetime import datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.expiry.expire import expire_these
from pulse_django.queue.database.job_queries import IS_EXPIRED, JobReader, is_expired
from pulse_django.queue.database.transactions import Json, copied, run_joined, undone_alone
from pulse_django.queue.enqueue import Clauses
from pulse_django.queue.words.display import without
from pulse_django.queue.words.durations import seconds_of
from pulse_django.queue.words.job_options import Key, NewJob, Payload
from pulse_django.queue.words.states import HOT

from .rule import Unique, UniqueKey

if TYPE_CHECKING:
    from pulse_django.queue.job import JobRow


TaskKey = tuple[str, str]  # a task, and a key of its jobs

# The condition of the index: jobs that hold their key.
HOLDS_KEY = "finished_at IS NULL AND unique_key IS NOT NULL AND (NOT unique_until_start OR attempts = 0)"
_ON_CONFLICT = f"ON CONFLICT (task, unique_key) WHERE {HOLDS_KEY} DO "

_LATER = "GREATEST(job.next_run_at, excluded.next_run_at)"
# AT TIME ZONE 'UTC' makes the sum independent of the session's time zone, and so IMMUTABLE (docs/adr/0065).
_UP_TO_LONGEST = (
    "GREATEST(job.next_run_at, LEAST(excluded.next_run_at, "
    "(job.created_at AT TIME ZONE 'UTC' + %s::float8 * interval '1 second') AT TIME ZONE 'UTC'))"
)
# Only if the other job has neither started nor expired when this one is created. A started job that holds the key was
# enqueued with until="end": ``_LET_GO``.
_CHANGE = f"""UPDATE
SET args = excluded.args,
    kwargs = excluded.kwargs,
    payload_bytes = excluded.payload_bytes,
    search_terms = excluded.search_terms,
    sensitive = excluded.sensitive,
    trace = excluded.trace,
    tags = excluded.tags,
    meta = excluded.meta,
    expires_at = excluded.expires_at,
    give_up_after = excluded.give_up_after,
    lane_key = excluded.lane_key,
    weight = excluded.weight,
    ready = excluded.lane_key::text = '',
    next_run_at = {{due}}
WHERE job.attempts = 0 AND NOT ({is_expired("job.", now="excluded.created_at")})
"""
# It changes nothing, and locks the row of the other job until the caller's transaction ends. If a worker claimed that
# job earlier, the run would not see the writes of the transaction, and no job would follow.
_HOLD_BACK = "UPDATE SET unique_key = job.unique_key WHERE false"

# A period that the caller's snapshot shows as unfinished needs no lock. Without the condition, each call would lock the
# row, and calls that change nothing would wait for each other. After a wait, the end of the other period is compared
# with that of a period that would begin now.
WINDOW = """
    INSERT INTO pulse_django_window AS win (task, key, until, job_id)
    SELECT wanted.task, wanted.key, clock_timestamp() + %s::float8 * interval '1 second', wanted.job_id
    FROM ({wanted}) AS wanted (task, key, job_id)
    WHERE NOT EXISTS (
        SELECT 1 FROM pulse_django_window AS held
        WHERE held.task::text = wanted.task::text AND held.key::text = wanted.key::text
            AND held.until > statement_timestamp()
    )
    ON CONFLICT (task, key) DO UPDATE SET until = excluded.until, job_id = excluded.job_id
    WHERE excluded.until - win.until >= %s::float8 * interval '1 second'
    RETURNING job_id
"""
ONE_WANTED = "SELECT %s::text, %s::text, {id}"
_OF_NEW = 'SELECT task, unique_key, id FROM new ORDER BY task COLLATE "C", unique_key COLLATE "C"'

NEXT_ID = "pg_catalog.nextval('pulse_django_job_id_seq'::regclass)"
TAKE_WINDOW = f"WITH taken AS ({WINDOW.format(wanted=ONE_WANTED.format(id=NEXT_ID))})\n"
TAKE_WINDOWS = WINDOW.format(wanted=_OF_NEW)

# The time was read before the wait for another transaction. A period from that time on would be too short or over.
_BEGIN_WINDOWS_WITH_JOBS = """
WITH begun AS MATERIALIZED (
    SELECT
        id, created_at + %s::float8 * interval '1 second' AS until,
        created_at + %s::float8 * interval '1 second' - interval '10 ms' AS nearly_until
    FROM pulse_django_job_hot
    WHERE id = ANY (%s::bigint[])
)
UPDATE pulse_django_window AS win
SET until = begun.until
FROM begun
WHERE win.job_id = ANY (%s::bigint[]) AND win.job_id = begun.id AND win.until < begun.nearly_until
RETURNING win.job_id
"""

_KEYS = "ROWS FROM (pg_catalog.unnest(%s::text[]), pg_catalog.unnest(%s::text[])) AS wanted (task, key)"

# The LIMIT keeps the planner from reading the whole table.
_HOLDERS = f"""
SELECT wanted.task, wanted.key, holder.id, holder.is_expired
FROM {_KEYS}
CROSS JOIN LATERAL (
    SELECT id, {IS_EXPIRED} AS is_expired
    FROM pulse_django_job_hot
    WHERE task::text = wanted.task AND unique_key::text = wanted.key AND {HOLDS_KEY}{{also}}
    LIMIT 1
) AS holder
"""  # noqa: S608 - made of constants
_NOT_STARTED = " AND attempts = 0"

_WINDOWS = f"""
SELECT win.task, win.key, win.job_id
FROM {_KEYS}
JOIN pulse_django_window AS win ON win.task::text = wanted.task AND win.key::text = wanted.key
WHERE win.until > statement_timestamp()
"""  # noqa: S608 - made of constants

# A call whose rule holds keys until the start conflicts with a started job that holds its key until the end: the
# declaration of the task has changed, or calls have different rules. That job now gives the key up, too.
_LET_GO = f"""
WITH started AS MATERIALIZED (
    SELECT job.id
    FROM {_KEYS}
    JOIN pulse_django_job_hot AS job ON job.task::text = wanted.task AND job.unique_key::text = wanted.key
    WHERE job.finished_at IS NULL AND job.unique_key IS NOT NULL AND NOT job.unique_until_start AND job.attempts > 0
    ORDER BY job.id
    FOR NO KEY UPDATE OF job
)
UPDATE pulse_django_job_hot AS job
SET unique_until_start = true
FROM started
WHERE job.id = started.id AND job.attempts > 0
RETURNING job.id
"""  # noqa: S608 - made of constants

# A separate statement, because its snapshot must contain the job of each period that it contains.
_FREE_ORPHANED_WINDOWS = f"""
DELETE FROM pulse_django_window AS win
USING {_KEYS}
WHERE win.task::text = wanted.task AND win.key::text = wanted.key
    AND NOT EXISTS (SELECT 1 FROM pulse_django_job WHERE id = win.job_id)
RETURNING win.job_id
"""  # noqa: S608 - made of constants


def conflict_of(rule: Unique) -> Clauses:
    """Return what an INSERT of a job with such a key does if another job holds it."""
    if rule.per is not None:
        return Clauses()
    if rule.on_conflict == "replace":
        return Clauses(conflict=_ON_CONFLICT + _CHANGE.format(due="excluded.next_run_at"))
    if rule.on_conflict == "debounce":
        if rule.max_delay is None:
            return Clauses(conflict=_ON_CONFLICT + _CHANGE.format(due=_LATER))
        longest = (seconds_of(rule.max_delay),)
        return Clauses(conflict=_ON_CONFLICT + _CHANGE.format(due=_UP_TO_LONGEST), conflict_params=longest)
    if rule.until_start and rule.on_conflict != "raise":
        return Clauses(conflict=_ON_CONFLICT + _HOLD_BACK)
    return Clauses(conflict=f"{_ON_CONFLICT}NOTHING")


def begin_windows_with_jobs(jobs: JobReader, rule: Unique, job_ids: Sequence[int]) -> None:
    """Set the beginning of the periods of these new jobs to the time at which the jobs were written."""
    if rule.per is not None and job_ids:
        seconds = seconds_of(rule.per)
        run_joined(jobs.write_alias, _BEGIN_WINDOWS_WITH_JOBS, [seconds, seconds, list(job_ids), list(job_ids)])


def holders(jobs: JobReader, rule: Unique, keys: Sequence[TaskKey]) -> dict[TaskKey, int]:
    """Return the jobs that hold these keys. A key without a job is free, or free by now: try again."""
    alias, params = jobs.write_alias, [[task for task, _ in keys], [key for _, key in keys]]
    if rule.per is not None:
        found = {(task, key): job_id for task, key, job_id in run_joined(alias, _WINDOWS, params)}
        there = set(jobs.using(alias).filter(pk__in=sorted(found.values())).values_list("pk", flat=True))
        if there != set(found.values()):  # deleted before the end of their periods
            run_joined(alias, _FREE_ORPHANED_WINDOWS, params)
        return {key: job_id for key, job_id in found.items() if job_id in there}
    holds = _HOLDERS.format(also=_NOT_STARTED if rule.until_start else "")
    rows = run_joined(alias, holds, params)
    found = {(task, key): job_id for task, key, job_id, is_expired in rows if not is_expired}
    if expired := [job_id for _, _, job_id, is_expired in rows if is_expired]:
        expire_these(jobs, expired)
    elif rule.until_start and len(found) < len(keys):
        run_joined(alias, _LET_GO, params)
    return found


def holder(jobs: JobReader, task: str, key: Key) -> JobRow | None:
    """Return the job that holds this key. None: the key is free now."""
    job_id = holders(jobs, key.rule, [(task, key.key)]).get((task, key.key))
    if job_id is None:
        return None
    rows = jobs.using(jobs.write_alias).filter(pk=job_id)
    found: JobRow | None = (rows if key.rule.per is not None else rows.filter(era=HOT)).first()
    return found


def changed(jobs: JobReader, job_id: int) -> JobRow:
    """Return the current row of a job that was changed."""
    rows = jobs.using(jobs.write_alias).filter(pk=job_id)
    found: JobRow = rows.filter(era=HOT).first() or rows.get()  # without a transaction it may have ended by now
    return found


# Add many jobs with unique keys: one statement for all jobs with the same rule.
#
# COPY cannot handle conflicts, so these are inserted. They are locked and written in the order of their keys: two lists
# with the same keys in another order do not deadlock.


_NEW = """WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, %s::json)
)"""
_IN_ORDER = 'ORDER BY task COLLATE "C", unique_key COLLATE "C"'
_RETURNING = "RETURNING id, task, unique_key"


class NewRow(NamedTuple):
    """A job of a list: its id if it is new, its key, and its columns as JSON."""

    job_id: int
    key: TaskKey
    text: str

    def __repr__(self) -> str:
        return without(self, "text")


def key_of(new: NewJob) -> TaskKey:
    key: UniqueKey = new.unique  # type: ignore[assignment]  # only jobs with a key come here
    return new.task, key.key


def folded(encoded: Sequence[tuple[NewJob, Payload]]) -> tuple[list[tuple[NewJob, Payload]], list[int]]:
    """Keep one job for each key: the first, or the last where a later call replaces an earlier one.

    Return these in the order in which their keys occurred first, and the position of its key for each job of the list.
    """
    place_of: dict[TaskKey, int] = {}
    kept: list[tuple[NewJob, Payload]] = []
    places = []
    for new, payload in encoded:
        key = key_of(new)
        place = place_of.setdefault(key, len(kept))
        places.append(place)
        rule = rule_of(new)
        if place == len(kept):
            kept.append((new, payload))
        elif rule.on_conflict == "raise":
            raise AlreadyEnqueued(new.task, None)
        elif not rule.keeps_first:
            kept[place] = (new, payload)
    return kept, places


def spelt(row: dict[str, Any]) -> str:
    """Return a row as the inside of a JSON object."""
    return ",".join(f'"{name}":{_spelt(value)}' for name, value in row.items())


def row_of(job_id: int, new: NewJob, payload: Payload, shared: str) -> NewRow:
    """Write a job as JSON. ``shared`` are its values beside its arguments and its key."""
    rule, key = rule_of(new), key_of(new)
    until_start = "true" if rule.until_start and rule.per is None else "false"
    own = f'"id":{job_id},"payload_bytes":{payload.size},"unique_key":"{key[1]}","unique_until_start":{until_start}'
    if payload.terms:
        own += f',"search_terms":{json.dumps(payload.terms)}'
    return NewRow(job_id, key, f'{{{own},"args":{payload.args},"kwargs":{payload.kwargs},{shared}}}')


def insert(jobs: JobReader, rule: Unique, rows: Iterable[NewRow], names: Sequence[str]) -> dict[TaskKey, int]:
    """Insert the jobs of one rule, or apply the rule if a key is held. Return the id of the job of each key."""
    pending = {row.key: row for row in sorted(rows, key=lambda row: row.key)}
    found: dict[TaskKey, int] = {}
    # Roll back the jobs that were inserted before a key proved to be held. The caller may catch the error and continue.
    with undone_alone(jobs.write_alias) if rule.on_conflict == "raise" else nullcontext():
        while pending:
            ids = {row.job_id: row.key for row in pending.values()}
            written = {
                ids.get(job_id, (task, key)): job_id
                for job_id, task, key in _insert(jobs, rule, pending.values(), tuple(names))
            }
            begin_windows_with_jobs(jobs, rule, [job_id for job_id in written.values() if job_id in ids])
            rest = [key for key in pending if key not in written]
            kept = holders(jobs, rule, rest) if rest else {}
            if kept and rule.on_conflict == "raise":
                (task, _), job_id = next(iter(kept.items()))
                raise AlreadyEnqueued(task, job_id)
            found |= written | kept
            pending = {key: row for key, row in pending.items() if key not in found}
    return found


def _insert(jobs: JobReader, rule: Unique, rows: Iterable[NewRow], names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    document = f"[{','.join(row.text for row in rows)}]"
    conflict = conflict_of(rule)
    window = () if rule.per is None else (seconds_of(rule.per),) * 2
    statement = _statement(names, conflict.conflict, rule.per is not None)
    return run_joined(jobs.write_alias, statement, (document, *window, *conflict.conflict_params))


@lru_cache(maxsize=64)
def _statement(names: tuple[str, ...], conflict: str, is_window: bool) -> str:
    """Return the statement that inserts jobs with these columns and those that all jobs have."""
    columns = ", ".join(("id", "args", "kwargs", "payload_bytes", *names))
    if is_window:
        taken = f"{_NEW},\ntaken AS ({TAKE_WINDOWS})"
        won = "id = ANY (ARRAY(SELECT job_id FROM taken))"
        into = f"INSERT INTO pulse_django_job_hot ({columns}) SELECT {columns} FROM new WHERE {won}"  # noqa: S608
        return f"{taken}\n{into} {_IN_ORDER} {_RETURNING}"
    columns += ", unique_key, unique_until_start"
    into = f"INSERT INTO pulse_django_job_hot AS job ({columns}) SELECT {columns} FROM new"  # noqa: S608
    return f"{_NEW}\n{into} {_IN_ORDER} {conflict} {_RETURNING}"


def rule_of(new: NewJob) -> Unique:
    key: UniqueKey = new.unique  # type: ignore[assignment]  # only jobs with a key come here
    return key.rule


def _spelt(value: Any) -> str:
    if isinstance(value, Json):
        return value.text
    return json.dumps(copied(value) if isinstance(value, datetime | timedelta) else value)
