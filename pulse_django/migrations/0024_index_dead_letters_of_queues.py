"""Build the index of dead letters by queue while the queue works.

This can be started again if it was interrupted.
"""

from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration

NAME = "pulse_job_dead_in_queue"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"  # an interrupted build leaves an invalid index
CREATE = f"""
CREATE INDEX CONCURRENTLY {NAME} ON pulse_django_job_hot (queue, finished_at) WHERE status::text = 'DEAD_LETTERED'
"""


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0023_traffic")]

    operations = [
        migrations.RunSQL(DROP, DROP),
        migrations.RunSQL(
            CREATE,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        fields=["queue", "finished_at"],
                        name=NAME,
                        condition=models.Q(status="DEAD_LETTERED"),
                    ),
                )
            ],
        ),
    ]
