"""The SQL that ends a run: the verdict, the write and the ledger. Settle and reap share it.

The verb begins the statement with the CTE ``ending``: a locked row for each run, with its outcome and the new status of
the job. A job that runs again and a dead letter stay in the hot partition. A completed or cancelled job leaves it.

The ledger needs no row for the run that completes a job: the job's row keeps the holder and all other facts of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from .capability import AtEnd, assembled, installed
from .words.decisions import GAVE_UP
from .words.options import COLUMNS

# How a job moves from the hot partition to the partition of the day on which it is completed or cancelled.
#
# One statement deletes it in the first and inserts it in the second. An UPDATE of the era would move it too, but a
# concurrent statement fails on a row that was moved, and skips a row that was deleted (docs/adr/0049).


HISTORY = "pulse_django_job_over"
CLOCK = "clock_timestamp()"
# A sub-select, so that it is computed once for a statement.
ERA = "(SELECT pg_catalog.to_char(statement_timestamp() AT TIME ZONE 'UTC', 'YYYYMMDD')::int)"

# The columns that a job keeps, unless the verb sets them. The others belong to a lease and become NULL, or are the
# unique key, which only an unfinished job holds.
_CARRIED = (
    *("id", "task", "queue", "priority", "args", "kwargs", "payload_bytes", "parent_id", "trace", "sensitive"),
    *("next_run_at", "attempts", "refunds", "losses", "progress", "progress_at"),
    *("cancel_requested_at", "cancel_reason", "last_error", "created_at", "started_at"),
    *("tags", "search_terms", "meta"),
    *COLUMNS,
)

# With the array, even of a single id, the DELETE uses the primary key whatever the statistics are. Otherwise the
# planner would read all rows of a table that was empty when it was analysed.
DELETE = """
    DELETE FROM pulse_django_job_hot AS job
    {using}
    WHERE job.id = ANY (ARRAY{ids}) AND {condition}
    RETURNING {carried}"""
INSERT = """
    INSERT INTO {history} ({columns})
    SELECT {values} FROM {gone}"""
_LEAVE = """
gone AS ({delete}
),
history AS ({insert}
){notes}"""


def leave(source: str, condition: str, *, brings: Sequence[str] = (), **values: str) -> str:
    """Return the SQL that moves the jobs of ``source`` that meet the condition, with these new values.

    Its rows are the CTE ``gone``. They have the columns ``brings`` of ``source`` as ``source_<name>``, so that no later
    CTE joins the two again: a planner that expects one row would compare each row with all others.
    """
    return _left(
        using=f"USING {source}",
        ids=f"[{source}.id]",
        condition=condition,
        also=[f"{source}.{column} AS source_{column}" for column in brings],
        gone="gone",
        values=values,
    )


def _left(*, using: str, ids: str, condition: str, also: Sequence[str], gone: str, values: dict[str, str]) -> str:
    columns = columns_of(values)
    own = ", ".join([*(f"job.{column}" for column in carried()), *also])
    return _LEAVE.format(
        delete=DELETE.format(using=using, ids=ids, condition=condition, carried=own),
        insert=INSERT.format(
            history=HISTORY, columns=", ".join(columns), values=", ".join(columns.values()), gone=gone
        ),
        notes="".join(f",\n{note}" for note in notes_of_over("gone", columns["status"])),
    )


def carried() -> list[str]:
    """Return the columns that a job keeps when it has ended."""
    return [*_CARRIED, *(column for one in installed() for column in one.carries)]


def columns_of(values: Mapping[str, str]) -> dict[str, str]:
    """Return the value for each column of the history."""
    kept = {column: value for one in installed() for column, value in one.carries.items()}
    return {column: column for column in _CARRIED} | kept | {"era": ERA, "finished_at": CLOCK, **values}


def at_ends() -> list[tuple[str, AtEnd]]:
    return [(one.name, one.at_end) for one in installed() if one.at_end is not None]


def noted_columns() -> dict[str, str]:
    """Return the job columns that the notes of capabilities read, with their types."""
    return {column: kind for _, one in at_ends() for column, kind in one.columns.items()}


def listed(columns: Iterable[str], row: str = "") -> str:
    """Return columns as the beginning of a list in SQL, with a comma after each."""
    return "".join(f"{row}{column}, " for column in columns)


def notes_of_over(gone: str, status: str) -> list[str]:
    """Return the CTEs that capabilities add when the jobs ``gone`` end."""
    return [f"over_for_{name} AS ({one.over.format(gone=gone, status=status)})" for name, one in at_ends() if one.over]


@assembled
def is_noted() -> str:
    """Return the SQL condition that a capability has written a row about an ended run."""
    return " OR ".join(one.is_noted for _, one in at_ends()) or "false"


# The rules of ``decide()`` that only the database can apply, because the facts may have changed since the report was
# made. A cancellation that was requested meanwhile wins over everything but success. A budget that was lowered
# meanwhile allows no retry, and ``give_up_after`` allows none that comes too late. A table-driven test compares the SQL
# with ``decide()``.
#
# ``wanted`` is the status that the report asks for, ``refund`` the number of attempts that it gives back, ``job`` the
# locked row, and ``too_late`` the condition that the retry would come later than ``give_up_after`` allows.
_VERDICT = """CASE
            WHEN {wanted} IN ('COMPLETED', 'CANCELLED') THEN {wanted}
            WHEN job.cancel_requested_at IS NOT NULL THEN 'CANCELLED'
            WHEN {wanted} = 'RETRYING' AND (job.attempts - job.refunds - {refund} >= job.max_attempts{too_late})
            THEN 'DEAD_LETTERED'
            ELSE {wanted}
        END"""

_IS_HELD = "job.locked_by::text = {row}.holder AND job.attempts = {row}.attempt{still}"
LEAVES = "ending.verdict IN ('COMPLETED', 'CANCELLED')"

# The fenced write and the ledger's row are one statement: neither can exist without the other. The values are computed
# first, from locked rows (docs/adr/0065).
_STAY = f"""
staying AS MATERIALIZED (
    SELECT
        id, holder, attempt, token, due_at, started_at, last_seen_at, outcome, verdict, error_class, message, traceback,
        {{noted}}error,
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
    WHERE NOT {LEAVES}
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
        staying.traceback, {{noted_of_staying}}job.task, job.queue, job.last_error AS error
),"""  # noqa: S608 - made of constants

# Columns of ``ending`` that a job needs when it leaves the hot partition.
BRINGS = (
    *("holder", "token", "last_seen_at", "outcome", "verdict", "error_class", "message", "traceback", "error"),
    *("refund", "loss", "cancel_reason", "progress", "result"),
)
TAKES_ALONG = {
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
        source_error_class AS error_class, source_message AS message, source_traceback AS traceback,
        {noted}task, queue, source_error AS error
    FROM gone
    UNION ALL
    SELECT * FROM stayed
)"""

# ON CONFLICT: a ledger that was restored or edited may have the row already. The run must end all the same.
HAS_ENTRY = "outcome <> 'SUCCEEDED'"
LEDGER = f"""
    INSERT INTO pulse_django_attempt (
        job_id, number, token, worker, due_at, started_at, finished_at, last_seen_at, outcome, error_class, message,
        traceback
    )
    SELECT
        id, attempt, token, holder, due_at, started_at, clock_timestamp(), last_seen_at, outcome,
        COALESCE(error_class, ''), COALESCE(message, ''), COALESCE(traceback, '')
    FROM {{ended}}
    WHERE {HAS_ENTRY}
    ON CONFLICT (job_id, number) DO NOTHING
"""  # noqa: S608 - made of constants


# If all runs succeeded, the jobs' rows contain everything but the results. The statement finds a result by the position
# of its job in an array: a join of two hundred jobs and reports would compare each job with each report. ``ending`` has
# checked the fence and locked the rows.
_RESULTS = """
results AS MATERIALIZED (
    SELECT
        pg_catalog.array_agg(id) AS ids, pg_catalog.array_agg(result) AS results,
        pg_catalog.bool_or(result IS NOT NULL) AS are_some
    FROM ending
),"""


@assembled
def _complete() -> str:
    result = "CASE WHEN are_some THEN results[pg_catalog.array_position(ids, id)]::jsonb END"
    left = _left(
        using="",
        ids="(SELECT id FROM ending)",
        condition="job.locked_by IS NOT NULL",
        also=["job.locked_by", "job.token"],
        gone="gone CROSS JOIN results",
        values={"status": "'COMPLETED'", "result": result, "completed_by": "locked_by", "completed_token": "token"},
    )
    return f"""{_RESULTS}{left},
ended AS (
    SELECT
        {listed(noted_columns())}id, locked_by::text AS holder, attempts AS attempt, 'COMPLETED' AS verdict
    FROM gone
)"""  # noqa: S608 - made of constants


def verdict(*, wanted: str, refund: str, too_late: str = "") -> str:
    """Return the SQL for the new status of a job, from the SQL of the status wanted and of the refund."""
    return _VERDICT.format(wanted=wanted, refund=refund, too_late=too_late and f" OR {too_late}")


def end(*, still: str = "", error: str = "ending.error", completes: bool = False, bare: bool = False) -> str:
    """Return the SQL that ends the runs in ``ending``, as the CTE ``ended``.

    ``still`` is a further condition on the row when it is written, ``error`` the last error of a job that stays.
    ``completes``: all runs succeeded. ``bare``: leave out the notes that may fail.
    """
    if completes:
        return _complete()
    stay = stay_sql(still, error)
    left = leave("ending", leaves(still), brings=BRINGS, **TAKES_ALONG)
    notes = "".join(f",\nstayed_for_{name} AS ({note})" for name, note in notes_of_stayed("stayed", bare).items())
    ended = _ENDED.format(noted=listed(noted_columns()))
    ledger = LEDGER.format(ended="ended")
    return f"{stay}{left}{notes},{ended},\nledger AS ({ledger})"


def notes_of_stayed(stayed: str, bare: bool) -> dict[str, str]:
    return {name: one.stayed.format(stayed=stayed) for name, one in at_ends() if not (bare and one.may_fail)}


def stay_sql(still: str, error: str) -> str:
    noted = noted_columns()
    return _STAY.format(still=still, error=error, noted=listed(noted), noted_of_staying=listed(noted, "staying."))


def leaves(still: str) -> str:
    return f"{_IS_HELD.format(row='ending', still=still)} AND {LEAVES}"


# The parts of the settle statement: True for batches in which all runs succeeded. Whether the next run would come later
# than ``give_up_after`` allows is computed once for each run, for the verdict and for the reason.
_FACTS = {"wanted": "report.status", "refund": "COALESCE(report.refund, 0)"}
_LATE = """
    CROSS JOIN LATERAL (
        SELECT clock_timestamp() + report.delay * interval '1 second' > job.created_at + job.give_up_after
    ) AS late (too_late)"""
WHY = f"CASE WHEN ending.too_late AND ending.status = 'RETRYING' THEN '{GAVE_UP} ' || ending.error END, ending.error"
_HAD = "late.too_late, job.refunds AS had_refunds, job.losses AS had_losses, job.lane_key"


@assembled
def parts() -> dict[bool, dict[str, str]]:
    noted = noted_columns()
    return {
        True: {"verdict": verdict(**_FACTS), "limit": "", "late": ""},
        False: {
            "verdict": f"{listed(noted, 'job.')}{_HAD}, {verdict(**_FACTS, too_late='late.too_late')}",
            "limit": f", {listed(noted)}created_at, give_up_after, losses, lane_key",
            "late": _LATE,
        },
    }


@assembled
def ends() -> dict[bool, str]:
    return {True: end(completes=True), False: end(error=WHY)}
