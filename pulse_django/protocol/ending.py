"""How a run ends: the verdict, the write and the ledger. Settle and reap end with the same statement.

The verb in front makes ``ending``: a row for each run, locked, with what happened and what is to become of the job. A
job that runs again and a dead letter stay in the hot partition; one that is completed or cancelled leaves it.

The ledger needs no row for the run that completes a job: the job's row keeps who ran it, and the rest it has anyway.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from pulse_django.words.decisions import GAVE_UP

from .history import leave, leave_all, leave_on_citus
from .one_task import CLOCK, NOW, Given, act_on
from .statements import Compiled
from .unresolved import IS_NOTED, note_stayed

# The rules of ``decide()`` that only the database can judge in time, because a report may have been written before: a
# cancellation that was requested meanwhile wins over everything but success, and a budget that was lowered meanwhile
# leaves no retry, nor does ``give_up_after`` allow one that comes later. A table-driven test compares it with
# ``decide()``.
#
# ``wanted`` is the status that the report asks for, ``refund`` how many attempts it gives back, ``job`` the locked row,
# and ``too_late`` whether the retry would come later than ``give_up_after`` allows.
_VERDICT = """CASE
            WHEN {wanted} IN ('COMPLETED', 'CANCELLED') THEN {wanted}
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN {wanted} = 'RETRYING' AND (job.attempts - job.refunds - {refund} >= job.max_attempts{too_late})
            THEN 'DEAD_LETTERED'
            ELSE {wanted}
        END"""

_IS_HELD = "job.locked_by::text = {row}.holder AND job.attempts = {row}.attempt{still}"
_LEAVES = "ending.verdict IN ('COMPLETED', 'CANCELLED')"

# The fenced write and the ledger's row in one statement: neither can exist without the other. What is written is worked
# out first, of rows that are locked (docs/adr/0065).
_STAY = f"""
staying AS MATERIALIZED (
    SELECT
        id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, verdict, error_class, message, traceback,
        batch_id, awaited, error,
        had_refunds + COALESCE(refund, 0) AS refunds,
        had_losses + COALESCE(loss, 0) AS losses,
        CASE
            WHEN verdict IN ('PENDING', 'RETRYING') THEN clock_timestamp() + delay * interval '1 second'
        END AS next_run_at,
        lane_key::text = '' OR delay IS NULL OR delay <= 0::float8 AS ready,
        CASE WHEN verdict = 'DEAD_LETTERED' THEN clock_timestamp() END AS finished_at,
        COALESCE({{error}}) AS last_error,
        progress::jsonb AS progress
    FROM ending
    WHERE NOT {_LEAVES}
),
stayed AS (
    UPDATE pulse_django_job_hot AS job
    SET status = staying.verdict,
        locked_by = NULL,
        lease_until = NULL,
        token = NULL,
        deadline = NULL,
        refunds = staying.refunds,
        losses = staying.losses,
        next_run_at = COALESCE(staying.next_run_at, job.next_run_at),
        ready = staying.ready,
        finished_at = staying.finished_at,
        last_error = COALESCE(staying.last_error, job.last_error),
        progress = COALESCE(staying.progress, job.progress)
    FROM staying
    WHERE job.id = ANY (ARRAY[staying.id]) AND {_IS_HELD.format(row="staying", still="{still}")}
    RETURNING
        job.id, staying.holder, staying.attempt, staying.token, staying.due_at, staying.started_at,
        staying.last_seen_at, staying.outcome, staying.verdict, staying.error_class, staying.message,
        staying.traceback, staying.batch_id, staying.awaited, job.task, job.queue, staying.error
),"""  # noqa: S608 - made of constants

# The columns of ``ending``, where it is written by statements that are given it.
_TYPES = {
    "id": "bigint", "holder": "text", "attempt": "int", "token": "bigint", "due_at": "timestamptz",
    "started_at": "timestamptz", "last_seen_at": "timestamptz", "outcome": "text", "verdict": "text",
    "error_class": "text", "message": "text", "traceback": "text", "batch_id": "bigint", "awaited": "boolean",
    "error": "text", "refund": "int", "loss": "int", "had_refunds": "int", "had_losses": "int", "lane_key": "text",
    "delay": "float8", "cancel_reason": "text", "progress": "text", "result": "text", "status": "text",
    "too_late": "boolean", "task": "text", "queue": "text",
}  # fmt: skip

# What a job that leaves does not carry along itself.
_BRINGS = (
    *("holder", "token", "last_seen_at", "outcome", "verdict", "error_class", "message", "traceback", "error"),
    *("refund", "loss", "cancel_reason", "progress", "result"),
)
_TAKES_ALONG = {
    "status": "source_verdict",
    "refunds": "refunds + COALESCE(source_refund, 0)",
    "losses": "losses + COALESCE(source_loss, 0)",
    "last_error": "COALESCE(source_error, last_error)",
    "cancel_reason": "COALESCE(source_cancel_reason, cancel_reason)",
    "progress": "COALESCE(source_progress::jsonb, progress)",
    "result": "source_result::jsonb",
    "completed_by": "CASE WHEN source_outcome = 'SUCCEEDED' THEN source_holder END",
    "completed_token": "CASE WHEN source_outcome = 'SUCCEEDED' THEN source_token END",
}
_ENDED = """
ended AS MATERIALIZED (
    SELECT
        id, source_holder AS holder, attempts AS attempt, source_token AS token, next_run_at AS due_at, started_at,
        source_last_seen_at AS last_seen_at, source_outcome AS outcome, source_verdict AS verdict,
        source_error_class AS error_class, source_message AS message, source_traceback AS traceback, batch_id, awaited,
        task, queue, source_error AS error
    FROM gone
    UNION ALL
    SELECT * FROM stayed
)"""

# ON CONFLICT: a ledger that was restored or edited may hold the row already. It must not keep a run from ending.
_HAS_ENTRY = "outcome <> 'SUCCEEDED'"
_LEDGER = f"""
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, error_class, message,
        traceback
    )
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM {{ended}}
    WHERE {_HAS_ENTRY}
    ON CONFLICT (job_id, number) DO NOTHING
"""  # noqa: S608 - made of constants


# If all runs succeeded, the jobs' rows contain everything but the results. A result is found by the position of its job
# in an array, because a join of two hundred jobs and reports would compare each job with each report. ``ending`` has
# checked the fence and locked the rows.
_RESULTS = """
results AS MATERIALIZED (
    SELECT
        pg_catalog.array_agg(id) AS ids, pg_catalog.array_agg(result) AS results,
        pg_catalog.bool_or(result IS NOT NULL) AS are_some
    FROM ending
),"""
_LEFT = leave_all(
    "ending",
    also=["job.locked_by", "job.token"],
    beside="results",
    status="'COMPLETED'",
    result="CASE WHEN are_some THEN results[pg_catalog.array_position(ids, id)]::jsonb END",
    completed_by="locked_by",
    completed_token="token",  # noqa: S106 - no password
)
_COMPLETE = f"""{_RESULTS}{_LEFT},
ended AS (
    SELECT id, locked_by::text AS holder, attempts AS attempt, 'COMPLETED' AS verdict, batch_id, awaited FROM gone
)"""  # noqa: S608 - made of constants


def verdict(*, wanted: str, refund: str, too_late: str = "") -> str:
    """Return the SQL for the status that a job gets, from that for the status wanted and for the refund."""
    return _VERDICT.format(wanted=wanted, refund=refund, too_late=too_late and f" OR {too_late}")


def end(*, still: str = "", error: str = "ending.error", completes: bool = False) -> str:
    """Return the SQL that ends what ``ending`` holds, as ``ended``.

    ``still`` is a further condition on the row as it is written, ``error`` what stands on a job that stays.
    ``completes``: all of them succeeded.
    """
    if completes:
        return _COMPLETE
    left = leave("ending", _leaves(still), brings=_BRINGS, **_TAKES_ALONG)
    stay = _STAY.format(still=still, error=error)
    ledger = _LEDGER.format(ended="ended")
    return f"{stay}{left},\nunresolved_too AS ({note_stayed('stayed')}),{_ENDED},\nledger AS ({ledger})"


def end_on_citus(
    alias: str, ending: Compiled, *, lacks: Collection[str], error: str, lock_timeout: float | None = None
) -> list[dict[str, Any]]:
    """Lock and judge with CTEs of which the last is ``ending``, end what that holds, and return its rows.

    The rows are locked until all is written, so the verdict is not asked for again. ``lacks``: columns that this
    ``ending`` does not have.
    """

    def writes(given: Given) -> list[Compiled]:
        statements = []
        if given.any("leaves"):
            is_noted = any(row["leaves"] and row["is_noted"] for row in given.rows)
            statements += leave_on_citus(given, _leaves(""), _TAKES_ALONG, brings=_BRINGS, is_noted=is_noted)
        if not all(row["leaves"] for row in given.rows):
            stay = _STAY.format(still="", error=error).removesuffix(",").replace("FROM ending", "FROM {given}")
            statements.append(given.compiled(f"WITH {stay} SELECT id FROM stayed"))  # noqa: S608 - made of constants
            if any(row["is_noted"] and not row["leaves"] for row in given.rows):
                statements.append(given.compiled(note_stayed("{given}")))
        if given.any("has_entry"):
            statements.append(given.compiled(_LEDGER.format(ended="{given}").replace(CLOCK, NOW)))
        return statements

    also = {"leaves": _LEAVES, "is_noted": IS_NOTED, "has_entry": _HAS_ENTRY}
    rows, _ = act_on(alias, ending, "ending", _TYPES, writes, lacks=lacks, also=also, lock_timeout=lock_timeout)
    return rows


def _leaves(still: str) -> str:
    return f"{_IS_HELD.format(row='ending', still=still)} AND {_LEAVES}"


# The parts of the settle statement, by whether all runs succeeded. Whether the next try would come later than
# ``give_up_after`` allows is asked once for each run, for the verdict and for the reason.
_FACTS = {"wanted": "report.status", "refund": "COALESCE(report.refund, 0)"}
_LATE = """
    CROSS JOIN LATERAL (
        SELECT clock_timestamp() + report.delay * interval '1 second' > job.created_at + job.give_up_after
    ) AS late (too_late)"""
WHY = f"CASE WHEN ending.too_late AND ending.status = 'RETRYING' THEN '{GAVE_UP} ' || ending.error END, ending.error"
_HAD = "late.too_late, job.batch_id, job.awaited, job.refunds AS had_refunds, job.losses AS had_losses, job.lane_key"
PARTS = {
    True: {"verdict": verdict(**_FACTS), "limit": "", "late": ""},
    False: {
        "verdict": f"{_HAD}, {verdict(**_FACTS, too_late='late.too_late')}",
        "limit": ", created_at, give_up_after, batch_id, awaited, losses, lane_key",
        "late": _LATE,
    },
}
ENDS = {True: end(completes=True), False: end(error=WHY)}
