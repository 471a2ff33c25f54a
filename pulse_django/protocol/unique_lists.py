"""Add many jobs with unique keys: one statement for all that follow the same rule.

COPY knows no conflicts, so these are inserted. They are locked and written in the order of their keys: two lists with
the same keys in another order do not deadlock.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any, NamedTuple

from pulse_django.exceptions import AlreadyEnqueued
from pulse_django.store.copy_text import Json, copied
from pulse_django.store.job_queries import JobReader
from pulse_django.store.transactions import run_joined, undone_alone
from pulse_django.words.job_options import NewJob, Payload
from pulse_django.words.reprs import without
from pulse_django.words.uniqueness import Unique, UniqueKey

from . import unique
from .unique import TaskKey

_NEW = """WITH new AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_populate_recordset(NULL::pulse_django_job_hot, %s::json)
)"""
_IN_ORDER = 'ORDER BY task COLLATE "C", unique_key COLLATE "C"'
_RETURNING = "RETURNING id, task, unique_key"


class Row(NamedTuple):
    """A job of a list: its id if it is new, its key, and its columns as JSON."""

    job_id: int
    key: TaskKey
    text: str

    def __repr__(self) -> str:
        return without(self, "text")


@dataclass(frozen=True, slots=True)
class Folded:
    """A list in which each key stands once."""

    jobs: list[tuple[NewJob, Payload]]  # in the order in which their keys first stood
    places: list[int]  # of each job of the list: where its key is among these


def key_of(new: NewJob) -> TaskKey:
    key: UniqueKey = new.unique  # type: ignore[assignment]  # only jobs with a key come here
    return new.task, key.key


def folded(encoded: Sequence[tuple[NewJob, Payload]]) -> Folded:
    """Keep one job for each key: the first, or the last where a later call replaces an earlier one."""
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
    return Folded(kept, places)


def spelt(columns: Sequence[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the columns in which any of these has a value, and each as the inside of a JSON object."""
    names = [name for name in columns[0] if any(one[name] is not None for one in columns)]
    return names, [",".join(f'"{name}":{_spelt(one[name])}' for name in names) for one in columns]


def row_of(job_id: int, new: NewJob, payload: Payload, shared: str) -> Row:
    """Spell a job as JSON. ``shared`` is what it has beside its arguments and its key."""
    rule, key = rule_of(new), key_of(new)
    until_start = "true" if rule.until_start and rule.per is None else "false"
    own = f'"id":{job_id},"payload_bytes":{payload.size},"unique_key":"{key[1]}","unique_until_start":{until_start}'
    if payload.terms:
        own += f',"search_terms":{json.dumps(payload.terms)}'
    return Row(job_id, key, f'{{{own},"args":{payload.args},"kwargs":{payload.kwargs},{shared}}}')


def insert(jobs: JobReader, rule: Unique, rows: Iterable[Row], names: Sequence[str]) -> dict[TaskKey, int]:
    """Insert the jobs of one rule, or do what it says of those whose key is held. Return the id of each key's job."""
    pending = {row.key: row for row in sorted(rows, key=lambda row: row.key)}
    found: dict[TaskKey, int] = {}
    with _all_or_none(jobs, rule):
        while pending:
            ids = {row.job_id: row.key for row in pending.values()}
            written = {
                ids.get(job_id, (task, key)): job_id
                for job_id, task, key in _insert(jobs, rule, pending.values(), tuple(names))
            }
            unique.begin_windows_with_jobs(jobs, rule, [job_id for job_id in written.values() if job_id in ids])
            rest = [key for key in pending if key not in written]
            kept = unique.holders(jobs, rule, rest) if rest else {}
            if kept and rule.on_conflict == "raise":
                (task, _), job_id = next(iter(kept.items()))
                raise AlreadyEnqueued(task, job_id)
            found |= written | kept
            pending = {key: row for key, row in pending.items() if key not in found}
    return found


def _all_or_none(jobs: JobReader, rule: Unique) -> AbstractContextManager[None]:
    """Take back what was inserted before a key proved to be held. The caller may catch the error and go on."""
    return undone_alone(jobs.write_alias) if rule.on_conflict == "raise" else nullcontext()


def _insert(jobs: JobReader, rule: Unique, rows: Iterable[Row], names: tuple[str, ...]) -> list[tuple[Any, ...]]:
    document = f"[{','.join(row.text for row in rows)}]"
    conflict = unique.conflict_of(rule)
    window = () if rule.per is None else (rule.per.total_seconds(),) * 2
    statement = _statement(names, conflict.sql, rule.per is not None)
    return run_joined(jobs.write_alias, statement, (document, *window, *conflict.params))


@lru_cache(maxsize=64)
def _statement(names: tuple[str, ...], conflict: str, is_window: bool) -> str:
    """Return the statement that inserts jobs with these columns beside those that all have."""
    columns = ", ".join(("id", "args", "kwargs", "payload_bytes", *names))
    if is_window:
        taken = f"{_NEW},\ntaken AS ({unique.TAKE_WINDOWS})"
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
