"""Refuse rows that Python cannot read, and labels without bounds: one such row broke every list that it was in.

What is there is mended first. The history is not read again afterwards: what is added to it from now on is checked.
This can be started again if it was interrupted.
"""

import datetime
from typing import Any

import django.db.models.functions
from django.db import migrations, models
from django.db.migrations.operations.base import Operation
from django.db.models import Q, Value, lookups

from pulse_django.migrations import _days
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.store.sql_functions import Cardinality, JsonType, PlaceOfNull, TextSize

FIRST, LAST = datetime.datetime(1899, 1, 1, tzinfo=datetime.UTC), datetime.datetime(9002, 1, 1, tzinfo=datetime.UTC)
HOT = "pulse_django_job_hot"
OF_JOB = (
    "expires_at", "lease_until", "deadline", "progress_at", "cancel_requested_at", "created_at", "started_at",
    "finished_at",
)  # fmt: skip
# The model, its table and its instants.
OTHERS = {
    "storedattempt": ("attempt", "due_at", "started_at", "finished_at", "last_seen_at", "late_at"),
    "amendment": ("amendment", "at"),
    "window": ("window", "until"),
    "limiter": ("limiter", "declared_at", "override_until", "failures_since", "closed_until"),
    "pausedkey": ("pausedkey", "paused_at", "paused_until"),
    "bucket": ("bucket", "at"),
    "declaration": ("declaration", "booted_at", "declared_at"),
    "departure": ("departure", "at"),
    "arrival": ("arrival", "at"),
    "traffic": ("traffic", "began_at"),
    "release": ("release", "seen_at"),
    "storedbatch": (
        "batch", "created_at", "sealed_at", "died_at", "ended_at", "closed_at", "cancelled_at", "paused_at"
    ),
    "dependency": ("dependency", "until", "met_at"),
    "step": ("step", "at"),
    "event": ("event", "sent_at"),
    "worker": (
        "worker", "started_at", "last_beat_at", "stopped_at", "lost_at", "acknowledged_at", "stack_asked_at", "stack_at"
    ),
    "queue": ("queue", "paused_at", "paused_until"),
    "minute": ("minute", "minute"),
    "duty": ("duty", "taken_at", "done_at"),
}  # fmt: skip

LABELS = ("tags", 20), ("search_terms", 8)
MOST_BYTES = 32_768  # of meta, of tags and of search terms
MEASURED = "status::text IN ('WAITING', 'PENDING', 'RETRYING')"


def readable(*columns: str) -> str:
    listed = ", ".join(columns)
    return f"LEAST({listed}) >= '1899-01-01 00:00+00' AND GREATEST({listed}) < '9002-01-01 00:00+00'"


def mended(table: str, *columns: str) -> str:
    """Let what lies beyond be far away: a pause without an end, or a lease, stays one."""
    near = (
        f"{one} = CASE WHEN {one} < '1899-01-01 00:00+00' THEN '1900-01-01 00:00+00'"
        f" WHEN {one} >= '9002-01-01 00:00+00' THEN '9000-01-01 00:00+00' ELSE {one} END"
        for one in columns
    )
    return f"UPDATE {table} SET {', '.join(near)} WHERE NOT ({readable(*columns)})"  # noqa: S608 - made of constants


def bounded(column: str, most: int) -> str:
    size = f"pg_catalog.octet_length(({column})::text) <= {MOST_BYTES}"
    no_null = f"pg_catalog.array_position({column}, NULL::text) IS NULL"
    return f"pg_catalog.cardinality({column}) <= {most} AND {size} AND {no_null}"


CAN_BE_READ = f"id > 0 AND {readable(*OF_JOB)}"
IS_SHORT = f"pg_catalog.octet_length((meta)::text) <= {MOST_BYTES}"
BOUNDED = (
    "(meta IS NULL AND tags IS NULL AND search_terms IS NULL) OR NOT "
    f"({MEASURED}) OR ({IS_SHORT} AND {' AND '.join(bounded(*one) for one in LABELS)})"
)
NUMBERS = " AND ".join(
    f"pg_catalog.jsonb_typeof({one}) = 'object' AND pg_catalog.octet_length(({one})::text) <= 2000"
    for one in ("numbers", "override")
)
_UNBOUNDED = f"UPDATE {HOT} SET {{0}} = NULL WHERE {{0}} IS NOT NULL AND {MEASURED} AND ({{1}})"  # noqa: S608
MEND = (
    "UPDATE pulse_django_job SET id = pg_catalog.nextval('pulse_django_job_id_seq'::regclass) WHERE id <= 0",
    mended("pulse_django_job", "next_run_at", *OF_JOB),
    *(mended(f"pulse_django_{table}", *columns) for table, *columns in OTHERS.values()),
    # An array of arrays has no place of a NULL.
    *(
        statement
        for column, most in LABELS
        for statement in (
            _UNBOUNDED.format(column, f"pg_catalog.array_ndims({column}) > 1"),
            _UNBOUNDED.format(column, f"NOT ({bounded(column, most)})"),
        )
    ),
    _UNBOUNDED.format("meta", f"NOT ({IS_SHORT})"),
    "UPDATE pulse_django_limiter SET numbers = '{}' WHERE pg_catalog.jsonb_typeof(numbers) <> 'object'"
    " OR pg_catalog.octet_length(numbers::text) > 2000",
    "UPDATE pulse_django_limiter SET override = NULL WHERE pg_catalog.jsonb_typeof(override) <> 'object'"
    " OR pg_catalog.octet_length(override::text) > 2000",
)

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
ALTER = "BEGIN; SET LOCAL lock_timeout = '500ms'; ALTER TABLE {0} DROP CONSTRAINT IF EXISTS {1}{2}; COMMIT"
ADD = ", ADD CONSTRAINT {} CHECK ({}) NOT VALID"


def add_check(model: str, table: str, check: models.CheckConstraint, condition: str) -> Operation:
    return migrations.RunSQL(
        [
            ALTER.format(table, check.name, ADD.format(check.name, condition)),
            f"ALTER TABLE {table} VALIDATE CONSTRAINT {check.name}",
        ],
        [ALTER.format(table, check.name, "")],
        state_operations=[migrations.AddConstraint(model, check)],
    )


def instants_of(model: str, table: str, *columns: str) -> Operation:
    in_range = Q()
    for one in columns:
        in_range &= Q(**{f"{one}__gte": FIRST, f"{one}__lt": LAST})
    check = models.CheckConstraint(condition=in_range, name=f"pulse_{table}_instants_can_be_read")
    return add_check(model, f"pulse_django_{table}", check, readable(*columns))


def check_history(apps: Any, schema_editor: Any) -> None:
    """Check what is added to the history, in each day that there is and that is made from now on."""
    condition = f"id > 0 AND {readable('next_run_at', *OF_JOB)}"
    _alter_history(schema_editor, ADD.format("pulse_job_over_can_be_read", condition))


def check_no_history(apps: Any, schema_editor: Any) -> None:
    _alter_history(schema_editor, "")


def _alter_history(schema_editor: Any, change: str) -> None:
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(ALTER.format(_days.layout(cursor).like, "pulse_job_over_can_be_read", change))


def _bounded(column: str, most: int) -> Q:
    return (
        Q(lookups.LessThanOrEqual(Cardinality(column), most))
        & Q(lookups.LessThanOrEqual(TextSize(column), MOST_BYTES))
        & Q(lookups.IsNull(PlaceOfNull(column), True))
    )


_least, _greatest = django.db.models.functions.Least(*OF_JOB), django.db.models.functions.Greatest(*OF_JOB)
_numbers = Q()
for _column in ("numbers", "override"):
    _numbers &= Q(lookups.Exact(JsonType(_column), Value("object")))
    _numbers &= Q(lookups.LessThanOrEqual(TextSize(_column), 2_000))


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0030_finite_schedules")]

    operations = [
        migrations.RunSQL(MEND, migrations.RunSQL.noop),
        add_check(
            "job",
            HOT,
            models.CheckConstraint(
                condition=Q(id__gt=0)
                & Q(lookups.GreaterThanOrEqual(_least, Value(FIRST)))
                & Q(lookups.LessThan(_greatest, Value(LAST))),
                name="pulse_job_can_be_read",
            ),
            CAN_BE_READ,
        ),
        add_check(
            "job",
            HOT,
            models.CheckConstraint(
                condition=Q(meta__isnull=True, tags__isnull=True, search_terms__isnull=True)
                | ~Q(status__in=["WAITING", "PENDING", "RETRYING"])
                | Q(lookups.LessThanOrEqual(TextSize("meta"), MOST_BYTES))
                & _bounded("tags", 20)
                & _bounded("search_terms", 8),
                name="pulse_job_labels_are_bounded",
            ),
            BOUNDED,
        ),
        migrations.RunPython(check_history, check_no_history),
        *(instants_of(model, *table) for model, table in OTHERS.items()),
        add_check(
            "limiter",
            "pulse_django_limiter",
            models.CheckConstraint(condition=_numbers, name="pulse_limiter_numbers_are_bounded"),
            NUMBERS,
        ),
    ]
