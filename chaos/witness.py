"""A row trigger that writes down every change of the jobs table, with the server's clock. It knows nothing of Pulse.

It runs in the transaction of whoever changes the row: what was rolled back was never written. Changes of one job are in
the order in which they happened, because its row's lock puts them in one. Who wrote is told by the session, which each
worker of a run is given by its connection's options, and not by what Pulse writes into the row.

A row that a transaction deletes in one partition and inserts in another was changed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.db import connections

from chaos.deaths import FAILING_HOOKS
from pulse_django.queue.words.states import Status
from tests.citus import is_on_citus

# Sent one by one: Citus passes a message of several on to a node as one, which it refuses.
INSTALL = (
    """
CREATE TABLE chaos_change (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    op text NOT NULL,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    by_worker text NOT NULL,
    job_id bigint NOT NULL,
    before jsonb,
    after jsonb
)
""",
    """
CREATE FUNCTION chaos_witness() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO {schema}.chaos_change (at, op, by_worker, job_id, before, after)
    VALUES (
        clock_timestamp(), TG_OP, {by}, COALESCE(NEW.id, OLD.id),
        CASE WHEN TG_OP <> 'INSERT' THEN to_jsonb(OLD) - 'kwargs' END,
        CASE WHEN TG_OP <> 'DELETE' THEN to_jsonb(NEW) - 'kwargs' END
    );
    RETURN NULL;
END
$$
""",
    """
CREATE TRIGGER chaos_witness AFTER INSERT OR UPDATE OR DELETE ON pulse_django_job
    FOR EACH ROW EXECUTE FUNCTION chaos_witness()
""",
    "CREATE SEQUENCE chaos_wishes START {first_wish}",
    """
CREATE TABLE chaos_wish (
    wish bigint PRIMARY KEY, task text NOT NULL, key text NOT NULL, job_id bigint NOT NULL,
    seq bigint GENERATED ALWAYS AS IDENTITY
)
""",
)
MOST_WISHES = 1_000_000_000  # in a shard
BY = "COALESCE(current_setting('chaos.worker', true), '')"
# A node of Citus does not know the session, so a change counts as one of the job's holder. On Citus the checker cannot
# tell whether another session has extended a lease.
BY_ON_CITUS = "pg_catalog.split_part(COALESCE(OLD.locked_by, NEW.locked_by, ''), ':', 1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A job as it stood."""

    status: str
    attempts: int
    refunds: int
    max_attempts: int
    losses: int
    locked_by: str | None
    token: int | None
    lease_until: datetime | None
    deadline: datetime | None
    started_at: datetime | None
    last_error: str
    result: Any
    cancel_requested_at: str | None
    task: str = ""
    key: str = ""  # the first argument, if it is a text
    created_at: datetime | None = None
    next_run_at: datetime | None = None
    expires_at: datetime | None = None
    args: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    seq: int
    at: datetime
    op: str  # INSERT, UPDATE, DELETE, and MOVE to another shard
    by: str  # the worker whose session wrote it; empty: nobody of theirs
    job: int
    before: Row | None
    after: Row | None
    shard: str = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A row of the ledger."""

    job: int
    number: int
    worker: str
    outcome: str
    is_reaped: bool  # ended by a watchdog
    late_outcome: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a caller wrote beside the unique job that it enqueued, in the same transaction."""

    wish: int
    task: str
    key: str
    job: int


def wishes(alias: str) -> list[Wish]:
    """Those that were committed, in the order in which their callers got hold of the key."""
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT wish, task, key, job_id FROM chaos_wish ORDER BY seq")
        return [Wish(wish=wish, task=task, key=key, job=job) for wish, task, key, job in cursor.fetchall()]


def install(alias: str, shard: int) -> None:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT current_schema()")
        [schema] = cursor.fetchone()
        by = BY_ON_CITUS if is_on_citus() else BY
        for statement in INSTALL if is_on_citus() else (*INSTALL, *FAILING_HOOKS):
            told = statement.replace("{schema}", schema).replace("{by}", by)
            cursor.execute(told.replace("{first_wish}", str(shard * MOST_WISHES + 1)))


def changes(alias: str) -> list[Change]:
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT seq, at, op, by_worker, job_id, before, after, xid::text FROM chaos_change ORDER BY seq")
        rows = cursor.fetchall()
    return in_one(
        (
            Change(seq=seq, at=at, op=op, by=by, job=job, before=_row(before), after=_row(after), shard=alias)
            for seq, at, op, by, job, before, after, _ in rows
        ),
        [xid for *_, xid in rows],
    )


def in_one(changes: Iterable[Change], transactions: Iterable[str]) -> list[Change]:
    """Make one change of a row that a transaction deletes in one partition and inserts in another.

    On Citus it is inserted first.
    """
    found: list[Change] = []
    half: dict[tuple[str, int], int] = {}  # where in ``found`` the first half of such a change is
    for change, transaction in zip(changes, transactions, strict=True):
        place = half.get((transaction, change.job), -1)
        first = found[place] if place >= 0 else None
        if first is not None and (first.op, change.op) == ("DELETE", "INSERT"):
            found[place] = replace(first, op="UPDATE", after=change.after)
        elif first is not None and (first.op, change.op) == ("INSERT", "DELETE") and _is_over(first):
            found[place] = replace(change, op="UPDATE", after=first.after)
        else:
            half[transaction, change.job] = len(found)
            found.append(change)
    return found


def _is_over(change: Change) -> bool:
    return change.after is not None and change.after.status in (Status.COMPLETED, Status.CANCELLED)


def ledger(alias: str) -> list[Entry]:
    with connections[alias].cursor() as cursor:
        cursor.execute(
            "SELECT job_id, number, worker, outcome, last_seen_at IS NOT NULL OR outcome IN ('TIMED_OUT', 'STALLED'),"
            " late_outcome FROM pulse_django_ledger"
        )
        return [
            Entry(job=job, number=number, worker=worker, outcome=outcome, is_reaped=reaped, late_outcome=late)
            for job, number, worker, outcome, reaped, late in cursor.fetchall()
        ]


def _row(found: Any) -> Row | None:
    if found is None:
        return None
    said = json.loads(found) if isinstance(found, str) else found
    instants = {
        name: datetime.fromisoformat(said[name]) if said[name] else None
        for name in ("lease_until", "deadline", "started_at", "created_at", "next_run_at", "expires_at")
    }
    names = ("status", "attempts", "refunds", "max_attempts", "losses", "locked_by", "token", "last_error", "result",
             "cancel_requested_at", "task", "args")  # fmt: skip
    key = next((one for one in said["args"][:1] if isinstance(one, str)), "")
    return Row(**{name: said[name] for name in names}, **instants, key=key)
