"""Check that the weights of all jobs are in range, while the queue works."""

from django.db import migrations

from pulse_django.migrations._postgresql import PostgresMigration

VALIDATE = "ALTER TABLE pulse_django_job_hot VALIDATE CONSTRAINT pulse_job_weight_in_range"


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0017_weights")]

    operations = [migrations.RunSQL(VALIDATE, migrations.RunSQL.noop)]
