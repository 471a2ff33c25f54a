"""Refuse instants and durations of schedules that Python cannot read: one such row stopped all schedules."""

import datetime
from collections.abc import Sequence

from django.contrib.postgres.operations import AddConstraintNotValid, ValidateConstraint
from django.db import migrations, models
from django.db.migrations.operations.base import Operation

from pulse_django.migrations._postgresql import PostgresMigration

FIRST = datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)
LAST = datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)
ZERO, LONGEST = datetime.timedelta(), datetime.timedelta(days=365_001)
NULLABLE = ("starts_at", "ends_at", "next_at", "waiting_at", "last_at", "gone_at", "paused_at", "paused_until")
INSTANTS = (*NULLABLE, "created_at", "changed_at")
DURATIONS = ("every", "phase", "grace", "jitter")

# A schedule without next_at is not due again until it is changed.
READABLE = "{0} >= '1899-01-01 00:00+00' AND {0} < '9002-01-01 00:00+00'"
OF_PAUSE = "UPDATE pulse_django_schedule SET paused_at = NULL, paused_until = NULL, pause_reason = '' WHERE NOT ({1})"
OF_INSTANT = "UPDATE pulse_django_schedule SET {0} = NULL WHERE NOT ({1})"
OF_HISTORY = "UPDATE pulse_django_schedule SET {0} = clock_timestamp() WHERE NOT ({1})"
OF_TICK = "DELETE FROM pulse_django_tick WHERE NOT ({1})"
OF_DURATION = """
UPDATE pulse_django_schedule SET {0} = LEAST(GREATEST({0}, interval '0'), interval '365000 days')
WHERE {0} < interval '0' OR {0} >= interval '365001 days'
"""


def corrections(statement: str, *names: str) -> tuple[str, ...]:
    return tuple(statement.format(name, READABLE.format(name)) for name in names)


CORRECT = (
    *corrections(OF_PAUSE, "paused_at"),
    *corrections(OF_INSTANT, *NULLABLE),
    *corrections(OF_HISTORY, "created_at", "changed_at"),
    *corrections(OF_DURATION, *DURATIONS),
    *corrections(OF_TICK, "at", "decided_at"),
)


def in_range(names: Sequence[str], first: object, last: object) -> models.Q:
    return models.Q(*((f"{name}__{lookup}", end) for name in names for lookup, end in (("gte", first), ("lt", last))))


def add_check(model: str, name: str, condition: models.Q) -> list[Operation]:
    check = models.CheckConstraint(condition=condition, name=name)
    return [AddConstraintNotValid(model, check), ValidateConstraint(model, name)]


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0029_tasks_paused_in_a_queue")]

    operations = [
        migrations.RunSQL(CORRECT, migrations.RunSQL.noop),
        *add_check("schedule", "pulse_schedule_instants_are_finite", in_range(INSTANTS, FIRST, LAST)),
        *add_check("schedule", "pulse_schedule_durations_are_finite", in_range(DURATIONS, ZERO, LONGEST)),
        *add_check("tick", "pulse_tick_instants_are_finite", in_range(["at", "decided_at"], FIRST, LAST)),
    ]
