"""Allow WAITING, and build the indexes of batches and of waiting jobs, while the queue works.

This can be started again if it was interrupted.
"""

from typing import Any

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations import _days
from pulse_django.migrations._postgresql import PostgresMigration

NAMES = ("pulse_job_batch_open", "pulse_job_batch_dead", "pulse_job_waiting")
DROP_INDEXES = tuple(f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name in NAMES)
CREATE_INDEXES = (
    """
    CREATE INDEX CONCURRENTLY pulse_job_batch_open ON pulse_django_job_hot (batch_id, id)
    WHERE batch_id IS NOT NULL AND finished_at IS NULL
    """,
    """
    CREATE INDEX CONCURRENTLY pulse_job_batch_dead ON pulse_django_job_hot (batch_id, id)
    WHERE batch_id IS NOT NULL AND finished_at IS NOT NULL
    """,
    "CREATE INDEX CONCURRENTLY pulse_job_waiting ON pulse_django_job_hot (id) WHERE status::text = 'WAITING'",
)

CHECK = "pulse_job_status_is_known"
ALTER = "BEGIN; SET LOCAL lock_timeout = '500ms'; ALTER TABLE pulse_django_job_hot {}; COMMIT"
BEFORE = "'PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELLED'"
REPLACE = f"DROP CONSTRAINT IF EXISTS {CHECK}, ADD CONSTRAINT {CHECK} CHECK (status::text IN ({{}})) NOT VALID"
VALIDATE = f"ALTER TABLE pulse_django_job_hot VALIDATE CONSTRAINT {CHECK}"
ALLOW_WAITING = (ALTER.format(REPLACE.format(f"'WAITING', {BEFORE}")), VALIDATE)
# What waits for other jobs would run at once.
REFUSE_WAITING = (
    "UPDATE pulse_django_job_hot SET status = 'PENDING' WHERE status::text = 'WAITING'",
    ALTER.format(REPLACE.format(BEFORE)),
    VALIDATE,
)

OUTCOMES_BEFORE = (
    "'SUCCEEDED', 'FAILED', 'TIMED_OUT', 'STALLED', 'WORKER_LOST', 'SNOOZED', 'RELEASED', 'CANCELLED', 'DISCARDED'"
)
REPLACE_OUTCOMES = """
BEGIN;
SET LOCAL lock_timeout = '500ms';
ALTER TABLE pulse_django_attempt
    DROP CONSTRAINT IF EXISTS pulse_attempt_outcome_is_known,
    DROP CONSTRAINT IF EXISTS pulse_attempt_late_has_an_instant,
    ADD CONSTRAINT pulse_attempt_outcome_is_known CHECK (outcome::text IN ({0})) NOT VALID,
    ADD CONSTRAINT pulse_attempt_late_has_an_instant CHECK (
        late_at IS NULL AND late_outcome::text = '' OR late_at IS NOT NULL AND late_outcome::text IN ({0})
    ) NOT VALID;
COMMIT
"""
VALIDATE_OUTCOMES = (
    "ALTER TABLE pulse_django_attempt VALIDATE CONSTRAINT pulse_attempt_outcome_is_known",
    "ALTER TABLE pulse_django_attempt VALIDATE CONSTRAINT pulse_attempt_late_has_an_instant",
)
ALLOW_WAITED = (REPLACE_OUTCOMES.format(f"'WAITED', {OUTCOMES_BEFORE}"), *VALIDATE_OUTCOMES)
REFUSE_WAITED = (
    "UPDATE pulse_django_attempt SET outcome = 'SNOOZED' WHERE outcome::text = 'WAITED'",
    "UPDATE pulse_django_attempt SET late_outcome = 'SNOOZED' WHERE late_outcome::text = 'WAITED'",
    REPLACE_OUTCOMES.format(OUTCOMES_BEFORE),
    *VALIDATE_OUTCOMES,
)


def index_days(apps: Any, schema_editor: Any) -> None:
    """Index the members of batches of the days that there are."""
    with schema_editor.connection.cursor() as cursor:
        _days.index_days(cursor, "batch")


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0020_workflows")]

    operations = [
        migrations.RunSQL(
            ALLOW_WAITING,
            REFUSE_WAITING,
            state_operations=[
                migrations.RemoveConstraint(
                    model_name="job",
                    name="pulse_job_status_is_known",
                ),
                migrations.AddConstraint(
                    model_name="job",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "WAITING",
                                    "PENDING",
                                    "RUNNING",
                                    "RETRYING",
                                    "COMPLETED",
                                    "DEAD_LETTERED",
                                    "CANCELLED",
                                ],
                            )
                        ),
                        name="pulse_job_status_is_known",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(
            ALLOW_WAITED,
            REFUSE_WAITED,
            state_operations=[
                migrations.RemoveConstraint(
                    model_name="storedattempt",
                    name="pulse_attempt_outcome_is_known",
                ),
                migrations.RemoveConstraint(
                    model_name="storedattempt",
                    name="pulse_attempt_late_has_an_instant",
                ),
                migrations.AlterField(
                    model_name="storedattempt",
                    name="late_outcome",
                    field=pulse_django.store.sql_functions.ShortText(
                        blank=True,
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("WAITED", "Waited"),
                            ("RELEASED", "Released"),
                            ("CANCELLED", "Cancelled"),
                            ("DISCARDED", "Discarded"),
                        ],
                        db_default="",
                        default="",
                        max_length=16,
                    ),
                ),
                migrations.AlterField(
                    model_name="storedattempt",
                    name="outcome",
                    field=pulse_django.store.sql_functions.ShortText(
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("WAITED", "Waited"),
                            ("RELEASED", "Released"),
                            ("CANCELLED", "Cancelled"),
                            ("DISCARDED", "Discarded"),
                        ],
                        max_length=16,
                    ),
                ),
                migrations.AddConstraint(
                    model_name="storedattempt",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            (
                                "outcome__in",
                                [
                                    "SUCCEEDED",
                                    "FAILED",
                                    "TIMED_OUT",
                                    "STALLED",
                                    "WORKER_LOST",
                                    "SNOOZED",
                                    "WAITED",
                                    "RELEASED",
                                    "CANCELLED",
                                    "DISCARDED",
                                ],
                            )
                        ),
                        name="pulse_attempt_outcome_is_known",
                    ),
                ),
                migrations.AddConstraint(
                    model_name="storedattempt",
                    constraint=models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("late_at__isnull", True), ("late_outcome", "")),
                            models.Q(
                                ("late_at__isnull", False),
                                (
                                    "late_outcome__in",
                                    [
                                        "SUCCEEDED",
                                        "FAILED",
                                        "TIMED_OUT",
                                        "STALLED",
                                        "WORKER_LOST",
                                        "SNOOZED",
                                        "WAITED",
                                        "RELEASED",
                                        "CANCELLED",
                                        "DISCARDED",
                                    ],
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_attempt_late_has_an_instant",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(DROP_INDEXES, DROP_INDEXES),
        migrations.RunSQL(
            CREATE_INDEXES,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        condition=models.Q(("batch__isnull", False), ("finished_at__isnull", True)),
                        fields=["batch", "id"],
                        name="pulse_job_batch_open",
                    ),
                ),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        condition=models.Q(("batch__isnull", False), ("finished_at__isnull", False)),
                        fields=["batch", "id"],
                        name="pulse_job_batch_dead",
                    ),
                ),
                migrations.AddIndex(
                    model_name="job",
                    index=models.Index(
                        condition=models.Q(("status", "WAITING")), fields=["id"], name="pulse_job_waiting"
                    ),
                ),
            ],
        ),
        migrations.RunPython(index_days, migrations.RunPython.noop),
    ]
