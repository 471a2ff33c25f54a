"""Prepare the table for becoming a partition. These read the whole table, and lock out no statement of a queue.

They can be started again if they were interrupted.
"""

from django.contrib.postgres.operations import ValidateConstraint
from django.db import migrations

from pulse_django.migrations._postgresql import PostgresMigration

# An interrupted build leaves an invalid index.
DROP_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS pulse_django_job_hot_pkey"
CREATE_INDEX = "CREATE UNIQUE INDEX CONCURRENTLY pulse_django_job_hot_pkey ON pulse_django_job (id, era)"

VALIDATE_CHECK = "ALTER TABLE pulse_django_job VALIDATE CONSTRAINT pulse_job_is_hot"

COPY_KEYS = """
INSERT INTO pulse_django_key (task, key, job_id)
SELECT task, idempotency_key, id
FROM pulse_django_job
WHERE idempotency_key IS NOT NULL
ON CONFLICT (task, key) DO UPDATE SET job_id = EXCLUDED.job_id WHERE pulse_django_key.job_id <> EXCLUDED.job_id
"""

NOTHING = migrations.RunSQL.noop


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0002_keys_and_completed_runs")]

    operations = [
        ValidateConstraint("Job", "pulse_job_result_only_if_completed"),
        migrations.RunSQL(VALIDATE_CHECK, NOTHING),
        migrations.RunSQL(DROP_INDEX, DROP_INDEX),
        migrations.RunSQL(CREATE_INDEX, NOTHING),
        migrations.RunSQL(COPY_KEYS, NOTHING),
    ]
