"""Build the index that leases of a queue are counted by, while the queue works. Only limits of queues use it.

This can be started again if it was interrupted.
"""

from django.db import migrations, models
from django.db.models import Q

from pulse_django.migrations._postgresql import PostgresMigration

NAME = "pulse_job_held_queue"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"  # an interrupted build leaves an invalid index
CREATE = (
    f"CREATE INDEX CONCURRENTLY {NAME} ON pulse_django_job_hot (queue, token) "
    "WHERE status::text = 'RUNNING' AND NOT (lane_key::text = '')"
)


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0014_index_lanes")]

    operations = [
        migrations.RunSQL(DROP, DROP),
        migrations.RunSQL(
            CREATE,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        fields=["queue", "token"],
                        name=NAME,
                        condition=Q(("status", "RUNNING"), Q(("lane_key", ""), _negated=True)),
                    ),
                )
            ],
        ),
    ]
