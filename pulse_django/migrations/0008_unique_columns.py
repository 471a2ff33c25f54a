"""Add what unique jobs need: the columns of their key, and the table of periods.

The index follows in the next migration, which builds it while the queue works.
"""

from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, same_owner
from pulse_django.store.sql_functions import ShortText

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"

# Who deletes jobs deletes periods too.
GRANT_AGAIN = grant_like("DELETE", "pulse_django_attempt", "SELECT, UPDATE, DELETE ON pulse_django_window")
SAME_OWNER = same_owner("TABLE pulse_django_window")


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0007_schedules")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Window",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("task", ShortText(max_length=200)),
                ("key", ShortText(max_length=64)),
                ("until", models.DateTimeField()),
                ("job_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "pulse_django_window",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["until"], name="pulse_window_ended"),
                    models.Index(fields=["job_id"], name="pulse_window_job"),
                ],
            },
        ),
        migrations.AddField("Job", "unique_key", ShortText(blank=True, editable=False, max_length=64, null=True)),
        migrations.AddField(
            "Job", "unique_until_start", models.BooleanField(db_default=False, default=False, editable=False)
        ),
        migrations.RunSQL(SAME_OWNER, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT_AGAIN, migrations.RunSQL.noop),
        migrations.RunSQL(migrations.RunSQL.noop, LIMIT_LOCKS),  # the first operation when this is reversed
    ]
