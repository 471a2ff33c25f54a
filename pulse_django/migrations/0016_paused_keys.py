"""Add the table of paused keys of limits and shares."""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, grant_like_column, same_owner

TABLE = "pulse_django_pausedkey"
GRANTS = (
    grant_like("SELECT", "pulse_django_queue", f"SELECT ON {TABLE}"),
    # Those who may claim.
    grant_like_column("UPDATE", "pulse_django_job_hot", "lease_until", f"INSERT, UPDATE, DELETE ON {TABLE}"),
    grant_like("UPDATE", "pulse_django_job_hot", f"INSERT, UPDATE, DELETE ON {TABLE}"),
)


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0015_index_leases_by_queue")]

    operations = [
        migrations.CreateModel(
            name="PausedKey",
            fields=[
                (
                    "lane_key",
                    pulse_django.store.sql_functions.ShortText(
                        db_collation="C", max_length=200, primary_key=True, serialize=False
                    ),
                ),
                ("paused_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                (
                    "paused_by",
                    pulse_django.store.sql_functions.ShortText(blank=True, db_default="", default="", max_length=150),
                ),
            ],
            options={"default_permissions": ()},
        ),
        migrations.RunSQL(same_owner(f"TABLE {TABLE}"), migrations.RunSQL.noop),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
    ]
