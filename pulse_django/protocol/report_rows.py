"""Spell reports as the settle statement reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, assert_never

from pulse_django.words.decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry, Wait
from pulse_django.words.error_details import MAX_CLASS, MAX_MESSAGE, MAX_SUMMARY, MAX_TRACEBACK, ErrorReport
from pulse_django.words.limits import MAX_DELAY
from pulse_django.words.outcomes import Failed, OutcomeName, Stalled, Succeeded, TimedOut, WorkerLost
from pulse_django.words.payloads import clean_text
from pulse_django.words.states import Status
from pulse_django.words.verb_results import Report

from .statements import Compiled, array, keys_of, quoted

_REPORTS = """
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, progress text, error_class text, message text, traceback text
    )
"""

# Most batches hold nothing else, and reading fifteen keys of which eleven are absent takes the server 7 us for each.
# The sub-selects hide the arrays' lengths from the planner: told of 400 rows, it merges them with the whole table.
COMPLETIONS = """
    SELECT
        id, holder, attempt, result, 'SUCCEEDED' AS outcome, 'COMPLETED' AS status, NULL::float8 AS delay,
        NULL::int AS refund, NULL::int AS loss, NULL AS error, NULL AS cancel_reason, NULL AS progress,
        NULL AS error_class, NULL AS message, NULL AS traceback
    FROM ROWS FROM (
        pg_catalog.unnest((SELECT %s::bigint[])), pg_catalog.unnest((SELECT %s::text[])),
        pg_catalog.unnest((SELECT %s::int[])), pg_catalog.unnest((SELECT %s::text[]))
    ) AS report (id, holder, attempt, result)
"""


def reported(reports: Sequence[Report]) -> Compiled:
    """Spell reports as the settle statement reads them."""
    return _REPORTS, (json.dumps([_row_of(report) for report in reports]),)


def completions(reports: Sequence[Report]) -> Compiled:
    leases = [report.lease for report in reports]
    results = [report.decision.result for report in reports]  # type: ignore[union-attr]  # they are completions
    columns = (
        [str(int(lease.job_id)) for lease in leases],
        [quoted(lease.holder) for lease in leases],
        [str(int(lease.attempt)) for lease in leases],
        ["NULL" if result is None else quoted(result) for result in results],
    )
    return COMPLETIONS, tuple(map(array, columns))


def is_plain_completion(report: Report) -> bool:
    return type(report.outcome) is Succeeded and type(report.decision) is Complete and report.progress is None


def _row_of(report: Report) -> dict[str, Any]:
    """Spell any report. A key that is absent is NULL: nothing to say.

    Everything is cleaned here once more: a report that crossed a process boundary was made who knows where."""
    outcome = report.outcome
    reason = outcome.error.last_error if isinstance(outcome, Failed) else getattr(outcome, "reason", "")
    row = keys_of(report.lease) | {"outcome": outcome.name, "message": clean_text(reason, MAX_SUMMARY)}
    if outcome.name is OutcomeName.WORKER_LOST:
        row["loss"] = 1
    if report.progress is not None:
        row["progress"] = report.progress
    if isinstance(outcome, Failed):
        row |= error_columns(outcome.error)
    if isinstance(outcome, Failed | TimedOut | Stalled | WorkerLost):
        row["error"] = _reason(reason)
    if stack := getattr(outcome, "stack", ""):
        row["traceback"] = clean_text(stack, MAX_TRACEBACK)
    return row | _verdict_of(report.decision)


def error_columns(error: ErrorReport) -> dict[str, str]:
    return {
        "error_class": clean_text(error.error_class, MAX_CLASS),
        "message": clean_text(error.message, MAX_MESSAGE),
        "traceback": clean_text(error.traceback, MAX_TRACEBACK),
    }


def _verdict_of(decision: Decision) -> dict[str, Any]:
    match decision:
        case Complete(result):
            return {"status": Status.COMPLETED, "result": result}
        case Retry(delay, reason, refund):
            row = {"status": Status.RETRYING, "delay": _seconds(delay), "error": _reason(reason)}
            return row | ({"refund": 1} if refund else {})
        case Postpone(delay, reason):
            row = {"status": Status.PENDING, "delay": _seconds(delay), "refund": 1}
            return row | ({"error": _reason(reason)} if reason else {})
        case Wait():
            return {"status": Status.WAITING, "refund": 1}
        case DeadLetter(reason):
            return {"status": Status.DEAD_LETTERED, "error": _reason(reason)}
        case Cancel(reason):
            return {"status": Status.CANCELLED, "cancel_reason": _reason(reason) if reason else None}
    assert_never(decision)


def _reason(text: str) -> str:
    return clean_text(text, MAX_SUMMARY) or "no reason given"


def _seconds(delay: timedelta) -> float:
    """A handler may ask for any delay; the run must end all the same."""
    return min(max(delay, timedelta()), MAX_DELAY).total_seconds()
