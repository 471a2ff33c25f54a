"""Admit one job that is not over for each key. The index is built while the queue works.

This can be started again if it was interrupted.
"""

from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration

# An interrupted build leaves an invalid index.
DROP_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS pulse_job_one_per_unique_key"
CREATE_INDEX = """
CREATE UNIQUE INDEX CONCURRENTLY pulse_job_one_per_unique_key ON pulse_django_job_hot (task, unique_key)
WHERE finished_at IS NULL AND unique_key IS NOT NULL AND (NOT unique_until_start OR attempts = 0)
"""


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0008_unique_columns")]

    operations = [
        migrations.RunSQL(DROP_INDEX, DROP_INDEX),
        migrations.RunSQL(
            CREATE_INDEX,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddConstraint(
                    "Job",
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("finished_at__isnull", True),
                            ("unique_key__isnull", False),
                            models.Q(("unique_until_start", False), ("attempts", 0), _connector="OR"),
                        ),
                        fields=("task", "unique_key"),
                        name="pulse_job_one_per_unique_key",
                    ),
                )
            ],
        ),
    ]
