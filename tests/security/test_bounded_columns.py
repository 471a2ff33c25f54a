"""Each column that a role may write is bounded in the table: one huge value costs its own row, never a statement of
many.

A ``varchar(n)`` is bounded by its type, which refuses with 22001. All other columns of variable length need a CHECK.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple
from unittest import mock

import pytest
from django.db import Error, transaction

from pulse_django import models
from pulse_django.queue.database.database_errors import sqlstate_of
from pulse_django.queue.database.workers import Presence
from pulse_django.queue.words.bounds import MAX_REGISTRY_TEXT
from pulse_django.schedules.tick import write_ticks
from pulse_django.schedules.tick_rules import Tick, TickOutcome
from pulse_django.sql_enqueue import task_options
from tests.faults import all_faults
from tests.queue.steps import sql
from tests.undoing import undone

from .handlers import echo
from .roles import ROLES, WORKER, acting_as

pytestmark = [
    pytest.mark.usefixtures("pulse_db", "roles"),
    pytest.mark.one_server("Citus measures on another server"),
]

LONG = 64 * 1024 * 1024
NOW = "2026-01-01T00:00:00Z"
# The columns of each table that a row needs.
ROWS: dict[str, dict[str, Any]] = {
    "amendment": {"job_id": 1, "attempts": 0, "args": [], "kwargs": {}},
    "attempt": {
        "job_id": 1, "number": 1, "token": 1, "worker": "w", "started_at": NOW, "finished_at": NOW, "outcome": "FAILED",
    },
    "batch": {"name": "b"},
    "declared_task": {"name": "t", "options": {}, "declared_in": "d"},
    "event": {"name": "e"},
    "job_hot": {"task": "t"},
    "job_over": {"id": 1, "era": 20260101, "task": "t", "status": "COMPLETED", "finished_at": NOW},
    "limiter": {"name": "l", "numbers": {}},
    "minute": {"minute": NOW, "signs": {}},
    "pause": {"queue": "q"},
    "schedule": {"name": "s", "task": "t", "every": "1 h", "paused_at": NOW},
    "step": {"job_id": 1, "name": "s", "number": 1, "attempt": 1, "token": 1},
    "tick": {"schedule_id": 1, "at": NOW, "outcome": "FIRED"},
    "traffic": {
        "kind": "task", "length": 1, "began_at": NOW, "name": "t", "ran": "{}", "waited": "{}",
        **dict.fromkeys(("enqueued", "started", "succeeded", "failed", "died", "ran_seconds", "waited_seconds"), 0),
    },
    "worker": {"name": "w", "boot_id": "b", "host": "h", "pid": 1, "slots": 1},
}  # fmt: skip
VALUES = {
    "text": "repeat(repeat('x', {0} / 1024), 1024)",
    "jsonb": "jsonb_build_object('x', repeat(repeat('x', {0} / 1024), 1024))",
    "text[]": "ARRAY[repeat(repeat('x', {0} / 1024), 1024)]",
    "integer[]": "array_fill(1, ARRAY[{0} / 4])",
    "bytea": "convert_to(repeat(repeat('x', {0} / 1024), 1024), 'UTF8')",
}
ARRAY_OF_JSON = "jsonb_build_array(repeat(repeat('x', {0} / 1024), 1024))"  # the shape of a job's args


class Column(NamedTuple):
    role: str
    table: str
    name: str
    kind: str
    may_insert: bool


WRITABLE = """
SELECT
    role, relname, attname, pg_catalog.format_type(atttypid, atttypmod),
    has_column_privilege(role, c.oid, attnum, 'INSERT')
FROM pg_class AS c JOIN pg_attribute AS a ON attrelid = c.oid CROSS JOIN unnest(%s::text[]) AS role
WHERE relname LIKE 'pulse\\_django\\_%%' AND relkind IN ('r', 'p') AND pg_table_is_visible(c.oid)
    AND attnum > 0 AND NOT attisdropped AND attlen = -1 AND atttypmod = -1
    AND has_column_privilege(role, c.oid, attnum, 'INSERT, UPDATE')
ORDER BY relname, attnum, role
"""


def writable(*roles: str) -> list[Column]:
    return [Column(*row) for row in sql(WRITABLE, list(roles))]


def answer_to(column: Column, length: int) -> str:
    """Write a value of this length as the role, undo it, and return the SQLSTATE. Empty: it was stored."""
    row = ROWS[column.table.removeprefix("pulse_django_")]
    value = (ARRAY_OF_JSON if column.name == "args" else VALUES[column.kind]).format(length)
    names = ", ".join(name for name in row if name != column.name)
    insert = f"INSERT INTO {column.table} ({{0}}) SELECT {{1}} FROM jsonb_populate_record(NULL::{column.table}, %s)"
    with undone():
        if column.may_insert:
            written = insert.format(f"{names}, {column.name}", f"{names}, {value}"), json.dumps(row)
        else:
            sql(insert.format(", ".join(row), ", ".join(row)), json.dumps(row))
            written = (f"UPDATE {column.table} SET {column.name} = {value}",)
        try:
            with acting_as(column.role), transaction.atomic():
                sql(*written)
        except Error as error:
            return sqlstate_of(error)
    return ""


def test_each_column_that_a_role_may_write_refuses_64_mb_of_one_letter() -> None:
    found = writable(*ROLES)
    assert {one.table.removeprefix("pulse_django_") for one in found} == set(ROWS)
    with all_faults() as about:
        for one in found:
            with about(one):
                assert answer_to(one, 1024) == ""
                assert answer_to(one, LONG) == "23514"


def test_a_column_without_a_bound_is_found() -> None:
    with undone():
        sql("ALTER TABLE pulse_django_event ADD note text, DROP CONSTRAINT pulse_event_payload_is_bounded")
        found = [one for one in writable(WORKER) if one.table == "pulse_django_event"]
        stored = {one.name for one in found if not answer_to(one, LONG)}
    assert stored == {"payload", "note"}


def test_our_own_texts_are_cut_before_they_are_written() -> None:
    long = "x" * (MAX_REGISTRY_TEXT + 1)
    numbers = dict.fromkeys(("pid", "slots", "in_flight", "stuck_slots"), 1)
    said = {"versions": {"project": long}, "tasks": [long], "vitals": {"stuck": {long: 1}}}
    models.Worker.objects.note(Presence(name="w", boot_id="b", host="h", queues=(), **numbers, **said))  # type: ignore[arg-type]  # by name
    assert models.Worker.objects.values_list("tasks", "vitals", "versions").get() == (None, {}, {})
    write_ticks("default", [(1, Tick(datetime(2026, 1, 1, tzinfo=UTC), TickOutcome.REFUSED, long), None)])
    assert "characters left out" in models.Tick.objects.get().note

    with mock.patch.object(task_options, "MAX_OPTIONS_TEXT", 100):
        assert "longer than" in task_options.described(echo)["refused"]
