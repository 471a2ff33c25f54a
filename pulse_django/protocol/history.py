"""How a job leaves the hot partition for that of the day on which it is completed or cancelled.

It is deleted here and inserted there, in one statement. An UPDATE of the era would move it too, but a statement that
meets a row which has been moved fails, where one that meets a deleted row passes it by (docs/adr/0049). On Citus it is
inserted there and then deleted here, in two statements (docs/adr/0086).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pulse_django.words.declared_options import COLUMNS

from .one_task import CLOCK, ERA, NOW, TODAY, Given
from .statements import Compiled
from .unresolved import note_over

# What a job takes along, unless the verb says otherwise. What is left out belongs to a lease, and is NULL, or is the
# unique key, which only a job that is not over holds.
CARRIED = (
    *("id", "task", "queue", "priority", "args", "kwargs", "payload_bytes", "parent_id", "trace", "masked"),
    *("next_run_at", "attempts", "refunds", "losses", "progress", "progress_at"),
    *("cancel_requested_at", "cancel_reason", "last_error", "created_at", "started_at"),
    *("expires_at", "tags", "search_terms", "meta", "batch_id", "node", "awaited"),
    *COLUMNS,
)

# With the array, also one of a single id, the DELETE uses the primary key whatever the statistics are. For a table that
# was empty when it was analysed, the planner would otherwise choose to read all rows.
_DELETE = """
    DELETE FROM pulse_django_job_hot AS job
    {using}
    WHERE job.id = ANY (ARRAY{ids}) AND {condition}
    RETURNING {carried}"""
_INSERT = """
    INSERT INTO pulse_django_job_over ({columns})
    SELECT {values} FROM {gone}"""
_LEAVE = """
gone AS ({delete}
),
history AS ({insert}
),
unresolved AS ({note})"""
# The same rows, which are locked, before they are deleted.
_GOES = """(
    SELECT {carried} FROM pulse_django_job_hot AS job CROSS JOIN {using}
    WHERE job.id = ANY (ARRAY{ids}) AND {condition}
) AS gone"""


def leave(source: str, condition: str, *, brings: Sequence[str] = (), **values: str) -> str:
    """Return the SQL that moves the jobs of ``source`` which meet the condition, with these new values.

    Its rows are ``gone``, and have the columns that ``source`` brings, as ``source_<name>``: to join them again, a
    planner that expects one row would compare each with all others.
    """
    return _left(
        using=f"USING {source}",
        ids=f"[{source}.id]",
        condition=condition,
        also=[f"{source}.{column} AS source_{column}" for column in brings],
        gone="gone",
        values=values,
    )


def leave_on_citus(
    given: Given, condition: str, values: Mapping[str, str], *, brings: Sequence[str] = (), is_noted: bool = True
) -> list[Compiled]:
    """Do what ``leave()`` says with these rows, which are locked. ``is_noted``: somebody may wait for one of them.

    The last statement deletes them, and returns their ids, tasks and queues.
    """
    columns = _columns(values)
    carried = [f"job.{column}" for column in CARRIED]
    also = [f"{given.name}.{column} AS source_{column}" for column in (*brings, NOW, TODAY)]
    where = {"ids": f"[{given.name}.id]", "condition": condition}
    gone = _GOES.format(using="{given}", carried=", ".join([*carried, *also]), **where)
    insert = _INSERT.format(columns=", ".join(columns), values=", ".join(columns.values()), gone=gone)
    note = note_over(gone, status=columns["status"])
    delete = _DELETE.format(using="USING {given}", carried="job.id, job.task, job.queue", **where)
    texts = [insert, *([note] if is_noted else []), delete]
    return [given.compiled(text.replace(CLOCK, f"source_{NOW}").replace(ERA, f"source_{TODAY}")) for text in texts]


def leave_all(source: str, *, also: Sequence[str], beside: str, **values: str) -> str:
    """Return the SQL that moves all jobs of ``source``, which are locked, without joining them to it.

    ``also`` are further columns of theirs that the values need, and ``beside`` is a relation of one row.
    """
    return _left(
        using="",
        ids=f"(SELECT id FROM {source})",  # noqa: S608 - made of constants
        condition="job.locked_by IS NOT NULL",
        also=also,
        gone=f"gone CROSS JOIN {beside}",
        values=values,
    )


def _left(*, using: str, ids: str, condition: str, also: Sequence[str], gone: str, values: dict[str, str]) -> str:
    columns = _columns(values)
    carried = ", ".join([*(f"job.{column}" for column in CARRIED), *also])
    return _LEAVE.format(
        delete=_DELETE.format(using=using, ids=ids, condition=condition, carried=carried),
        insert=_INSERT.format(columns=", ".join(columns), values=", ".join(columns.values()), gone=gone),
        note=note_over("gone", status=columns["status"]),
    )


def _columns(values: Mapping[str, str]) -> dict[str, str]:
    """Return what each column of history gets."""
    return {column: column for column in CARRIED} | {"era": ERA, "finished_at": CLOCK, **values}
