"""Add the tables of jobs that are on their way from one shard to another. Nothing else is changed."""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, same_owner


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0021_index_workflows")]

    operations = [
        migrations.CreateModel(
            name="Arrival",
            fields=[
                ("departure_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("is_refused", models.BooleanField(db_default=False, default=False)),
                ("at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            name="Departure",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField(unique=True)),
                ("to_shard", models.IntegerField()),
                ("rows", models.JSONField()),
                ("at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
            ],
            options={"default_permissions": ()},
        ),
        migrations.RunSQL(
            same_owner("TABLE pulse_django_departure", "TABLE pulse_django_arrival"), migrations.RunSQL.noop
        ),
        migrations.RunSQL(
            grant_like("SELECT", "pulse_django_queue", "SELECT ON pulse_django_departure"), migrations.RunSQL.noop
        ),
    ]
