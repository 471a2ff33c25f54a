"""End runs: accept each report whose lease is still valid, and record the others as late outcomes.

A lease is valid if the job still has its holder and attempt. Time is not compared: a lease that expired and was not
reaped is accepted. A refused report changes nothing. Its lease is ``lost``, which is counted, logged and sent as a
signal.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from time import monotonic
from typing import Any, assert_never

from django.db import DatabaseError, ProgrammingError, connections

from pulse_django.safe_logging import SafeLogger

from .database.dialects import Statements, statements_for
from .database.job_queries import JobReader
from .database.transactions import Row, is_in_transaction, run_joined
from .ending import WHY, end, ends, is_noted, parts
from .heartbeat import still_held
from .statements import UNSTORABLE, Compiled, array, check_delay, in_halves, keys_of, quoted
from .words.bounds import MAX_DELAY
from .words.decisions import Cancel, Complete, DeadLetter, Decision, Postpone, Retry, Wait
from .words.leases import Lease
from .words.outcomes import Failed, OutcomeName, Released, Stalled, Succeeded, TimedOut, WorkerLost
from .words.payloads import (
    MAX_CLASS,
    MAX_MESSAGE,
    MAX_SUMMARY,
    MAX_TRACEBACK,
    ErrorReport,
    clean_text,
    error_in_one_line,
)
from .words.states import Status
from .words.verb_results import Report, Settled

logger = SafeLogger(__name__)

NONE: frozenset[Lease] = frozenset()

ENDING = """
WITH report AS MATERIALIZED (SELECT * FROM ({reports}) AS report ORDER BY id),
ending AS MATERIALIZED (
    SELECT
        report.*, job.token, job.started_at, job.next_run_at AS due_at, NULL::timestamptz AS last_seen_at,
        {verdict} AS verdict
    FROM report
    CROSS JOIN LATERAL (
        SELECT token, started_at, next_run_at, cancel_requested_at, attempts, refunds, max_attempts{limit}
        FROM pulse_django_job_hot AS job
        WHERE job.id = report.id AND job.locked_by::text = report.holder AND job.attempts = report.attempt
        FOR NO KEY UPDATE {skip_locked}
    ) AS job{late}
)"""
_SETTLE = f"""{ENDING},
{{end}}
SELECT id, holder, attempt, verdict, {{is_noted}} FROM ended
"""  # noqa: S608 - made of constants

# Late reports have separate statements, because they need a new snapshot: if the settle above waited for a reap to
# commit, it does not see the ledger row that the reap wrote. Completed runs come first, because every verb locks jobs
# before attempts.
#
# If another report arrives for the run that completed a job, this run gets its own row in the ledger.
COMPLETED = """
WITH report AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS report (
        id bigint, holder text, attempt int, outcome text, error_class text, message text, traceback text
    )
),
locked AS MATERIALIZED (
    SELECT id, completed_by, attempts, completed_token, next_run_at, started_at, finished_at
    FROM pulse_django_job
    WHERE id = ANY (ARRAY(SELECT id FROM report)) AND completed_by::text = ANY (ARRAY(SELECT holder FROM report))
    ORDER BY id
    FOR NO KEY UPDATE
),
completed AS MATERIALIZED (
    SELECT
        job.*, report.outcome, report.error_class, report.message, report.traceback,
        report.outcome = 'SUCCEEDED' AS repeated
    FROM report
    JOIN locked AS job
        ON job.id = report.id AND job.attempts = report.attempt AND job.completed_by::text = report.holder
)"""
CLEAR = """
    UPDATE pulse_django_job AS job
    SET completed_by = NULL, completed_token = NULL
    FROM {completed}
    WHERE job.id = completed.id AND NOT completed.repeated AND job.locked_by IS NULL
"""
STORE = """
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, outcome, error_class, message, traceback,
        late_outcome, late_at
    )
    SELECT
        id, attempts, completed_token, completed_by, next_run_at, started_at, finished_at, 'SUCCEEDED',
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, ''), outcome, clock_timestamp()
    FROM {completed}
    WHERE NOT repeated
    ON CONFLICT (job_id, number) DO NOTHING
"""
_STORE_COMPLETED_RUNS = f"""{COMPLETED},
cleared AS ({CLEAR.format(completed="completed")}),
stored AS ({STORE.format(completed="completed")})
SELECT id, completed_by, attempts, repeated FROM completed
"""  # noqa: S608 - made of constants

_RECORD_LATE_OUTCOMES = """
WITH report AS MATERIALIZED (
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS report (id bigint, holder text, attempt int, outcome text)
),
entry AS MATERIALIZED (
    SELECT
        attempt.id, attempt.job_id, attempt.worker, attempt.number, report.outcome,
        attempt.outcome::text = report.outcome AS repeated
    FROM report
    JOIN pulse_django_attempt AS attempt
        ON attempt.job_id = report.id AND attempt.number = report.attempt AND attempt.worker::text = report.holder
    ORDER BY attempt.job_id, attempt.number
    FOR NO KEY UPDATE OF attempt
),
late AS MATERIALIZED (
    SELECT id, outcome, clock_timestamp() AS late_at FROM entry WHERE NOT repeated
),
kept AS (
    UPDATE pulse_django_attempt AS attempt
    SET late_outcome = late.outcome, late_at = late.late_at
    FROM late
    WHERE attempt.id = late.id AND attempt.late_outcome::text = ''
)
SELECT job_id, worker, number, repeated FROM entry
"""


class Settling(Statements):
    """The statements that end runs and keep what was reported after that."""

    def end(self, reports: str, params: Sequence[Any], completes: bool, *, wait: bool, bare: bool) -> list[Row]:
        """End the runs in ``reports``. Return their leases, new statuses, and whether a capability noted them."""
        sql = statement_of(reports, completes, wait=wait, bare=bare)
        return run_joined(self.alias, sql, params, plan_once=not bare)

    def store_completed_runs(self, reports: str) -> list[Row]:
        """Give completed runs a row in the ledger. Return their leases, and whether they succeeded again."""
        return run_joined(self.alias, _STORE_COMPLETED_RUNS, [reports])


def settle(jobs: JobReader, reports: Collection[Report], *, wait: bool = True) -> Settled:
    """End these runs: accept each report whose lease is still valid, and record the others as late outcomes.

    In a transaction of the caller, the reports become part of it; a rollback also discards late outcomes. Without
    ``wait``, a job whose row another transaction has locked is returned as skipped: report it again soon.
    """
    first: dict[Lease, Report] = {}
    for report in reports:
        first.setdefault(report.lease, report)
    if not first:
        return Settled(accepted={}, repeated=NONE, lost=NONE)
    # Completions have their own statement, which takes half as long. If the second statement fails, its reports are
    # skipped, because the others were accepted already. The first needs all rights that the second needs, so a lasting
    # failure shows there.
    plain = [report for report in first.values() if is_plain_completion(report)]
    rest = [report for report in first.values() if not is_plain_completion(report)]
    unsent: frozenset[Lease] = frozenset()
    settle_some = partial(in_halves, jobs.write_alias, lambda some, bare: _settle(jobs, some, wait, bare))
    if plain and rest and not is_in_transaction(jobs.write_alias):
        rows = settle_some(rest)
        try:
            rows += settle_some(plain)
        except DatabaseError as error:
            if wait:
                raise
            logger.warning("Settling %d of %d reports failed: %s", len(plain), len(first), error_in_one_line(error))
            unsent = frozenset(report.lease for report in plain)
    else:  # in a transaction, one statement locks all jobs in order
        rows = settle_some(list(first.values()))
    has_notes = any(row[4] for row in rows)
    if len(rows) == len(reports) and all(row[3] == Status.COMPLETED for row in rows):
        accepted = dict.fromkeys(first, Status.COMPLETED)
        return Settled(accepted=accepted, repeated=NONE, lost=NONE, has_notes=has_notes, has_others=False)
    accepted = {Lease(*row[:3]): Status(row[3]) for row in rows}
    others = first.keys() - accepted.keys() - unsent
    skipped = still_held(jobs, others) if others and not wait else frozenset()
    refused = others - skipped
    # A second report on one lease is late as well, even if the first was accepted.
    late = [report for report in reports if first[report.lease] is not report or report.lease in refused]
    repeated = _record_late_outcomes(jobs, late) & refused if late else frozenset()
    lost, skipped = frozenset(refused - repeated), skipped | unsent
    return Settled(accepted=accepted, repeated=repeated, lost=lost, skipped=skipped, has_notes=has_notes)


def release(jobs: JobReader, leases: Collection[Lease], *, delay: timedelta = timedelta(), reason: str = "") -> Settled:
    """Return jobs to the queue that no handler is running. Their attempts are refunded."""
    check_delay(delay)
    return settle(jobs, [Report(lease, Released(delay, reason), Postpone(delay)) for lease in leases])


def keep_errors_after_completion(jobs: JobReader, errors: Mapping[Lease, ErrorReport]) -> list[int]:
    """Add errors to the ledger that handlers raised after their jobs were completed. Return the ids of these jobs."""
    failed = {"outcome": OutcomeName.FAILED}
    raised = json.dumps([keys_of(lease) | failed | error_columns(error) for lease, error in errors.items()])
    try:
        rows = statements_for(Settling, jobs.write_alias).store_completed_runs(raised)
    except (*UNSTORABLE, ProgrammingError):  # for example, grants of an older release: the next reports go on
        if connections[jobs.write_alias].in_atomic_block:
            raise
        logger.exception("Storing the late errors of %d completed jobs failed", len(errors))
        return []
    return sorted({job_id for job_id, *_ in rows})


def _settle(jobs: JobReader, reports: Sequence[Report], wait: bool, bare: bool = False) -> list[Row]:
    try:
        return _send(jobs, reports, wait, bare)
    except UNSTORABLE as error:
        # In a transaction of the caller it is broken, and the caller decides what to do. Several are halved.
        if connections[jobs.write_alias].in_atomic_block or len(reports) > 1 or bare:
            raise
        _log_failure(reports[0].lease.job_id)
        for report, is_bare in _instead_of(reports[0], error):
            with suppress(*UNSTORABLE):
                return _send(jobs, [report], wait, is_bare)
        raise


def _send(jobs: JobReader, reports: Sequence[Report], wait: bool, bare: bool) -> list[Row]:
    completes = not bare and all(is_plain_completion(report) for report in reports)
    source, params = completions(reports) if completes else reported(reports)
    return statements_for(Settling, jobs.write_alias).end(source, params, completes, wait=wait, bare=bare)


def _instead_of(report: Report, error: Exception) -> Iterator[tuple[Report, bool]]:
    """Yield reports to send instead of one that cannot be stored, and whether to send them bare."""
    if isinstance(report.decision, DeadLetter):
        yield report, True  # the row of its hook may have caused the error
    if report.progress is not None:
        report = report._replace(progress=None)
        yield report, False
        if isinstance(report.decision, DeadLetter):
            yield report, True
    if not (isinstance(report.outcome, Failed) and isinstance(report.decision, DeadLetter)):
        failed = Failed(ErrorReport.of(error))
        dead = Report(report.lease, failed, DeadLetter(f"storing its report failed: {failed.error.summary}"))
        yield from ((dead, False), (dead, True))


BETWEEN_FAILURES = 60.0  # seconds between two log lines: one cause may concern each job of a task
_failures = {"logged_at": float("-inf"), "unlogged": 0}


def _log_failure(job_id: int) -> None:
    if monotonic() - _failures["logged_at"] < BETWEEN_FAILURES:
        _failures["unlogged"] += 1
        return
    text = "Storing the report on job %d failed (reports that failed since the last such line: %d)"
    logger.exception(text, job_id, _failures["unlogged"])
    _failures.update(logged_at=monotonic(), unlogged=0)


def statement_of(reports: str, completes: bool, *, wait: bool, bare: bool = False) -> str:
    """Return the statement that ends the runs in ``reports``. ``completes``: all of them succeeded."""
    skip = "" if wait else "SKIP LOCKED"
    ending = end(error=WHY, bare=True) if bare else ends()[completes]
    return _SETTLE.format(reports=reports, skip_locked=skip, end=ending, is_noted=is_noted(), **parts()[completes])


def _record_late_outcomes(jobs: JobReader, late: Sequence[Report]) -> frozenset[Lease]:
    """Record late reports in the ledger. Return the leases whose outcome it has already."""
    keys = json.dumps([keys_of(report.lease) | {"outcome": report.outcome.name} for report in late])
    rows = statements_for(Settling, jobs.write_alias).store_completed_runs(keys)
    rows += run_joined(jobs.write_alias, _RECORD_LATE_OUTCOMES, [keys])
    return frozenset(Lease(*row[:3]) for row in rows if row[3])


# Reports as relations that the settle statement reads.


_REPORTS = """
    SELECT * FROM pg_catalog.json_to_recordset(%s::json) AS report (
        id bigint, holder text, attempt int, outcome text, status text, delay float8, refund int, loss int,
        error text, cancel_reason text, result text, progress text, error_class text, message text, traceback text
    )
"""

# Most batches contain only completions, and reading fifteen JSON keys of which eleven are absent takes the server 7 us
# for each. The sub-selects hide the lengths of the arrays from the planner: if it expected 400 rows, it would merge
# them with the whole table.
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
    """Return reports as a relation that the settle statement reads."""
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
    """Return a report as a row. A missing key is NULL.

    Texts are cleaned here once more, because a report may come from another process."""
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
    """Return a delay in seconds, bounded: a handler may ask for any delay, and its run must end all the same."""
    return min(max(delay, timedelta()), MAX_DELAY).total_seconds()
