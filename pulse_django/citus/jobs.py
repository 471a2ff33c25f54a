"""The statements of the kernel that differ on Citus: claim, settle, reap, cancel, and what a node does not have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pulse_django.queue.cancel import ASK, CANCELLED, WAITS, WANTED, Cancelling
from pulse_django.queue.cancel import BRINGS as BRINGS_TO_CANCEL
from pulse_django.queue.claim import Granting
from pulse_django.queue.database.prepared_statements import Preparing
from pulse_django.queue.database.tables import Counting
from pulse_django.queue.database.transactions import Params, Row, refuse_callers_transaction
from pulse_django.queue.ending import (
    BRINGS,
    CLOCK,
    DELETE,
    ERA,
    HAS_ENTRY,
    INSERT,
    LEAVES,
    LEDGER,
    TAKES_ALONG,
    WHY,
    at_ends,
    carried,
    columns_of,
    is_noted,
    leaves,
    noted_columns,
    notes_of_stayed,
    parts,
    stay_sql,
)
from pulse_django.queue.prune import Carrying
from pulse_django.queue.reap import ANSWERS, REAP_LOCK_TIMEOUT, Reaping, ending_sql
from pulse_django.queue.settle import CLEAR, COMPLETED, ENDING, STORE, Settling
from pulse_django.queue.statements import Compiled

from .one_task import NOW, TODAY, Given, act_on

# Citus distributes only one level of partitions, so ended jobs are inserted into the table of all jobs.
HISTORY = "pulse_django_job"


class CarryingOnCitus(Carrying):
    history = HISTORY


class PreparingOnCitus(Preparing):
    """Citus cannot plan a statement in several steps without knowing the parameters."""

    can_prepare = False


class CountingOnCitus(Counting):
    """The tables are on other servers than the statistics."""

    def changes(self) -> str:
        return ""


class GrantingOnCitus(Granting):
    """Citus evaluates no function in SET, so a CTE computes the values and the UPDATE copies them (docs/adr/0065).

    The UPDATE finds each job by its primary key: the planner cannot use a merge or hash join for ``= ANY (ARRAY[id])``.
    With ``= id``, a plan that was made for an empty table would read the whole index of a full one. With the join, a
    claim of 100 takes an eighth longer than with the array.
    """

    grant = """granted AS MATERIALIZED (
    SELECT
        id,
        clock_timestamp() + COALESCE(lease_ttl, %s) AS lease_until,
        pg_catalog.nextval('pulse_django_token') AS token,
        clock_timestamp() + timeout AS deadline,
        {started} AS started_at
    FROM fitting
    WHERE is_small AND has_slots AND has_room
),
claimed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = 'RUNNING',
        attempts = job.attempts + 1,
        locked_by = %s,
        lease_until = granted.lease_until,
        token = granted.token,
        deadline = granted.deadline,
        started_at = granted.started_at
    FROM granted
    WHERE job.id = ANY (ARRAY[granted.id]) AND job.locked_by IS NULL"""


# A job leaves the hot partition: one statement inserts it into the history, and another one deletes it.

# It is STABLE, and Citus cannot send such an INSERT to the node.
_SIZE = re.compile(r"pg_catalog\.pg_column_size\((\w+)\)")
# The rows, locked and not yet deleted.
_GOES = """(
    SELECT {carried} FROM pulse_django_job_hot AS job CROSS JOIN {using}
    WHERE job.id = ANY (ARRAY{ids}) AND {condition}
) AS gone"""


def leave(
    given: Given, condition: str, values: Mapping[str, str], *, brings: Sequence[str] = (), is_noted: bool = True
) -> list[Compiled]:
    """Return the statements that do as ``ending.leave()`` with these locked rows.

    ``is_noted``: jobs may wait for one of them. The last statement deletes the rows, and returns their ids, tasks and
    queues.
    """
    columns = {
        name: _SIZE.sub(r"pg_catalog.octet_length(\1::text)", value) for name, value in columns_of(values).items()
    }
    own = [f"job.{column}" for column in carried()]
    also = [f"{given.name}.{column} AS source_{column}" for column in (*brings, NOW, TODAY)]
    where = {"ids": f"[{given.name}.id]", "condition": condition}
    gone = _GOES.format(using="{given}", carried=", ".join([*own, *also]), **where)
    insert = INSERT.format(history=HISTORY, columns=", ".join(columns), values=", ".join(columns.values()), gone=gone)
    notes = [one.over.format(gone=gone, status=columns["status"]) for _, one in at_ends() if one.over and is_noted]
    delete = DELETE.format(using="USING {given}", carried="job.id, job.task, job.queue", **where)
    texts = [insert, *notes, delete]
    return [given.compiled(text.replace(CLOCK, f"source_{NOW}").replace(ERA, f"source_{TODAY}")) for text in texts]


# The columns of ``ending``.
_TYPES = {
    "id": "bigint", "holder": "text", "attempt": "int", "token": "bigint", "due_at": "timestamptz",
    "started_at": "timestamptz", "last_seen_at": "timestamptz", "outcome": "text", "verdict": "text",
    "error_class": "text", "message": "text", "traceback": "text", "error": "text",
    "refund": "int", "loss": "int", "had_refunds": "int", "had_losses": "int", "lane_key": "text",
    "delay": "float8", "cancel_reason": "text", "progress": "text", "result": "text", "status": "text",
    "too_late": "boolean", "task": "text", "queue": "text",
}  # fmt: skip


def _end(
    alias: str,
    ending: tuple[str, Params],
    *,
    lacks: Collection[str],
    error: str,
    lock_timeout: float | None = None,
    bare: bool = False,
) -> list[dict[str, Any]]:
    """Lock and judge runs with CTEs of which the last is ``ending``, end the runs in it, and return its rows.

    The rows stay locked until everything is written, so the verdict still holds then. ``lacks``: columns that this
    ``ending`` does not have. ``bare`` is as in ``ending.end()``.
    """

    def writes(given: Given) -> list[Compiled]:
        statements = []
        if given.any("leaves"):
            has_notes = any(row["leaves"] and row["is_noted"] for row in given.rows)
            statements += leave(given, leaves(""), TAKES_ALONG, brings=BRINGS, is_noted=has_notes)
        if not all(row["leaves"] for row in given.rows):
            stays = stay_sql("", error).removesuffix(",").replace("FROM ending", "FROM {given}")
            statements.append(given.compiled(f"WITH {stays} SELECT id FROM stayed"))  # noqa: S608 - made of constants
            if any(row["is_noted"] and not row["leaves"] for row in given.rows):
                statements += map(given.compiled, notes_of_stayed("{given}", bare).values())
        if given.any("has_entry"):
            statements.append(given.compiled(LEDGER.format(ended="{given}").replace(CLOCK, NOW)))
        return statements

    also = {"leaves": LEAVES, "is_noted": is_noted(), "has_entry": HAS_ENTRY}
    types = _TYPES | noted_columns()
    rows, _ = act_on(alias, ending, "ending", types, writes, lacks=lacks, also=also, lock_timeout=lock_timeout)
    return rows


class SettlingOnCitus(Settling):
    _TYPES = {
        "id": "bigint", "completed_by": "text", "attempts": "int", "completed_token": "bigint",
        "next_run_at": "timestamptz", "started_at": "timestamptz", "finished_at": "timestamptz", "outcome": "text",
        "error_class": "text", "message": "text", "traceback": "text", "repeated": "boolean",
    }  # fmt: skip

    def end(self, reports: str, params: Sequence[Any], completes: bool, *, wait: bool, bare: bool) -> list[Row]:
        ending = ENDING.format(reports=reports, skip_locked="" if wait else "SKIP LOCKED", **parts()[False])
        rows = _end(self.alias, (ending, tuple(params)), lacks=("task", "queue"), error=WHY, bare=bare)
        return [(row["id"], row["holder"], row["attempt"], row["verdict"], row["is_noted"]) for row in rows]

    def store_completed_runs(self, reports: str) -> list[Row]:
        def store(given: Given) -> list[Compiled]:
            texts = CLEAR.format(completed="{given}"), STORE.format(completed="{given}").replace(CLOCK, NOW)
            return [] if all(row["repeated"] for row in given.rows) else [given.compiled(text) for text in texts]

        found, _ = act_on(self.alias, (COMPLETED, (reports,)), "completed", self._TYPES, store)
        return [(row["id"], row["completed_by"], row["attempts"], row["repeated"]) for row in found]


class ReapingOnCitus(Reaping):
    def end(self, pick: str, values: Params, bare: bool) -> list[Row]:
        refuse_callers_transaction(self.alias)
        ending = ending_sql().format(pick=pick), values
        lacks, wait = ("status", "too_late"), REAP_LOCK_TIMEOUT
        found = _end(self.alias, ending, lacks=lacks, error="ending.error", lock_timeout=wait, bare=bare)
        return [tuple(row.get(column) for column in ANSWERS) for row in found]


class CancellingOnCitus(Cancelling):
    _TYPES = {
        "id": "bigint", "status": "text", "task": "text", "queue": "text", "attempts": "int", "waits": "boolean",
        "reason": "text",
    }  # fmt: skip

    def request(self, params: Sequence[Any]) -> list[Row]:
        def cancel_and_ask(given: Given) -> list[Compiled]:
            statements = []
            if given.any("waits"):
                statements += leave(given, WAITS, CANCELLED, brings=BRINGS_TO_CANCEL)
            if not all(row["waits"] for row in given.rows):
                ask = ASK.replace("FROM wanted", "FROM {given}")
                statements.append(given.compiled(f"WITH {ask} SELECT id FROM asked"))  # noqa: S608 - made of constants
            return statements

        found, _ = act_on(self.alias, (WANTED, tuple(params)), "wanted", self._TYPES, cancel_and_ask)
        answers = ("status", "task", "queue", "attempts")
        return [
            (row["id"], "CANCELLED" if row["waits"] else "RUNNING", *(row[name] for name in answers)) for row in found
        ]


STATEMENTS = (
    CancellingOnCitus, CarryingOnCitus, CountingOnCitus, GrantingOnCitus, PreparingOnCitus, ReapingOnCitus,
    SettlingOnCitus,
)  # fmt: skip
