"""Add what is known of lost workers. Columns without a rewrite, in a small table."""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like

# Who pauses queues acknowledges lost workers.
GRANT = grant_like("INSERT", "pulse_django_queue", "UPDATE (acknowledged_at, acknowledged_by) ON pulse_django_worker")


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0024_index_dead_letters_of_queues")]

    operations = [
        migrations.AddField("Worker", "lost_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField("Worker", "acknowledged_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "Worker",
            "acknowledged_by",
            pulse_django.store.sql_functions.ShortText(blank=True, db_default="", default="", max_length=150),
        ),
        migrations.AddConstraint(
            "Worker",
            models.CheckConstraint(
                condition=models.Q(("lost_at__isnull", False))
                | models.Q(("acknowledged_at__isnull", True), ("acknowledged_by", "")),
                name="pulse_worker_acknowledged_if_lost",
            ),
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]
