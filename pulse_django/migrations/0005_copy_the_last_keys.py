"""Copy keys of jobs that a transaction added which was open meanwhile, and delete those of jobs that are gone."""

from django.db import migrations

from pulse_django.migrations._postgresql import PostgresMigration

COPY_KEYS = """
INSERT INTO pulse_django_key (task, key, job_id)
SELECT task, idempotency_key, id
FROM pulse_django_job
WHERE idempotency_key IS NOT NULL
ON CONFLICT (task, key) DO UPDATE SET job_id = EXCLUDED.job_id
WHERE NOT EXISTS (SELECT FROM pulse_django_job AS job WHERE job.id = pulse_django_key.job_id)
"""
DELETE_ORPHANS = """
DELETE FROM pulse_django_key AS key
WHERE NOT EXISTS (SELECT FROM pulse_django_job AS job WHERE job.id = key.job_id)
"""


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0004_history_apart")]

    operations = [
        migrations.RunSQL(COPY_KEYS, migrations.RunSQL.noop),
        migrations.RunSQL(DELETE_ORPHANS, migrations.RunSQL.noop),
    ]
