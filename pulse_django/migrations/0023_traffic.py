"""Add the tables of what tasks and queues did, and of releases. Nothing else is changed."""

from django.db import migrations, models

import pulse_django.store.sql_functions
import pulse_django.store.traffic
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, same_owner

TABLES = ("pulse_django_traffic", "pulse_django_release")
NAMES = ", ".join(TABLES)


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0022_shards")]

    operations = [
        migrations.CreateModel(
            name="Release",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("version", pulse_django.store.sql_functions.ShortText(max_length=200)),
                ("seen_at", models.DateTimeField()),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            name="Traffic",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "kind",
                        "length",
                        "began_at",
                        "name",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("kind", pulse_django.store.sql_functions.ShortText(max_length=5)),
                ("length", models.SmallIntegerField()),
                ("began_at", models.DateTimeField()),
                ("name", pulse_django.store.sql_functions.ShortText(max_length=200)),
                ("enqueued", models.IntegerField()),
                ("started", models.IntegerField()),
                ("succeeded", models.IntegerField()),
                ("failed", models.IntegerField()),
                ("died", models.IntegerField()),
                ("ran_seconds", models.FloatField()),
                ("ran", pulse_django.store.traffic.IntegerList()),
                ("waited_seconds", models.FloatField()),
                ("waited", pulse_django.store.traffic.IntegerList()),
            ],
            options={"default_permissions": ()},
        ),
        migrations.CreateModel(
            name="TaskOverview",
            fields=[],
            options={
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
                "proxy": True,
                "default_permissions": (),
                "indexes": [],
                "constraints": [],
            },
            bases=("pulse_django.job",),
        ),
        migrations.RunSQL(same_owner(*(f"TABLE {table}" for table in TABLES)), migrations.RunSQL.noop),
        migrations.RunSQL(grant_like("SELECT", "pulse_django_minute", f"SELECT ON {NAMES}"), migrations.RunSQL.noop),
        # Who writes the minutes writes these with them.
        migrations.RunSQL(
            grant_like("INSERT", "pulse_django_minute", f"INSERT, DELETE ON {NAMES}"), migrations.RunSQL.noop
        ),
        migrations.RunSQL(
            grant_like("INSERT", "pulse_django_minute", "USAGE ON SEQUENCE pulse_django_release_id_seq"),
            migrations.RunSQL.noop,
        ),
    ]
