"""Add the table of the arguments that waiting jobs had before they were amended."""

from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, same_owner
from pulse_django.store.sql_functions import ClockTimestamp, ShortText

# Who deletes jobs deletes their amendments too. Without this right a watchdog could not go on.
GRANT_AGAIN = grant_like("DELETE", "pulse_django_attempt", "SELECT, DELETE ON pulse_django_amendment")


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0009_unique_index")]

    operations = [
        migrations.CreateModel(
            name="Amendment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=ClockTimestamp())),
                ("attempts", models.IntegerField()),
                ("args", models.JSONField()),
                ("kwargs", models.JSONField()),
                ("masked", ShortText(blank=True, max_length=2000, null=True)),
                ("by", ShortText(blank=True, db_default="", default="", max_length=200)),
                ("reason", models.TextField(blank=True, db_default="", default="")),
            ],
            options={
                "verbose_name": "amendment",
                "verbose_name_plural": "amendments",
                "default_permissions": (),
                "indexes": [models.Index(fields=["job_id", "id"], name="pulse_amendment_job")],
            },
        ),
        migrations.AlterModelOptions(
            name="job",
            options={
                "permissions": [
                    ("retry_job", "Can retry dead letters"),
                    ("cancel_job", "Can cancel jobs, and take them from their workers"),
                    ("schedule_job", "Can say when and where waiting jobs run"),
                    ("amend_job", "Can change the arguments of waiting jobs"),
                    ("view_arguments", "Can see the arguments and results of jobs"),
                ],
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
            },
        ),
        migrations.RunSQL(same_owner("TABLE pulse_django_amendment"), migrations.RunSQL.noop),
        migrations.RunSQL(GRANT_AGAIN, migrations.RunSQL.noop),
    ]
