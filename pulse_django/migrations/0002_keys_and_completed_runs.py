"""Add what jobs that are over need: their era, the run that completed them, and a table of idempotency keys.

Every statement here is short. What reads the table follows in the next migration, without its strongest lock.
"""

from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.store.sql_functions import ShortText

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"

# A row of a partitioned table has no identity of its own, and a foreign key needs one.
REFUSE_FOREIGN_KEYS = """
DO $$
DECLARE
    found text;
BEGIN
    SELECT pg_catalog.string_agg(pg_catalog.format('%s of %s', conname, conrelid::regclass), ', ') INTO found
    FROM pg_constraint
    WHERE contype = 'f' AND confrelid IN ('pulse_django_job'::regclass::oid, 'pulse_django_attempt'::regclass::oid);
    IF found IS NOT NULL THEN
        RAISE EXCEPTION 'Foreign keys refer to the jobs of Pulse: %', found
        USING HINT = 'Set db_constraint=False on these fields and migrate their apps first.';
    END IF;
END
$$
"""

# So that attaching the table as a partition does not read it.
ADD_CHECK = "ALTER TABLE pulse_django_job ADD CONSTRAINT pulse_job_is_hot CHECK (era = 0) NOT VALID"
DROP_CHECK = "ALTER TABLE pulse_django_job DROP CONSTRAINT IF EXISTS pulse_job_is_hot"


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0001_initial")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.RunSQL(REFUSE_FOREIGN_KEYS, migrations.RunSQL.noop),
        migrations.AddField("Job", "era", models.IntegerField(db_default=0, default=0, editable=False)),
        migrations.AddField("Job", "completed_by", ShortText(blank=True, max_length=160, null=True)),
        migrations.AddField("Job", "completed_token", models.BigIntegerField(blank=True, null=True)),
        migrations.RemoveConstraint("Job", "pulse_job_result_only_if_completed"),
        AddConstraintNotValid(
            "Job",
            models.CheckConstraint(
                condition=models.Q(
                    ("completed_by__isnull", True),
                    ("completed_token__isnull", True),
                    ("result__isnull", True),
                )
                | models.Q(("status", "COMPLETED")),
                name="pulse_job_result_only_if_completed",
            ),
        ),
        migrations.RunSQL(ADD_CHECK, DROP_CHECK),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("task", ShortText(max_length=200)),
                ("key", ShortText(max_length=200)),
                ("job_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "pulse_django_key",
                "default_permissions": (),
            },
        ),
        migrations.RunSQL(migrations.RunSQL.noop, LIMIT_LOCKS),  # the first operation when this is reversed
    ]
