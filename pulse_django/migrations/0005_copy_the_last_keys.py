"""Copy keys of jobs that a transaction added which was open while the others were copied."""

from django.db import migrations

COPY_KEYS = """
INSERT INTO pulse_django_key (task, key, job_id)
SELECT task, idempotency_key, id
FROM pulse_django_job
WHERE idempotency_key IS NOT NULL
ON CONFLICT DO NOTHING
"""


class Migration(migrations.Migration):
    dependencies = [("pulse_django", "0004_history_apart")]

    operations = [migrations.RunSQL(COPY_KEYS, migrations.RunSQL.noop)]
