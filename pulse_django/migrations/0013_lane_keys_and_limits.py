"""Add the third column of a lane, and the tables of limits.

No column rewrites the table. The indexes follow in the next migration, which builds them while the queue works.
"""

from django.db import migrations, models

import pulse_django.protocol.limiters
import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, grant_like_column, same_owner

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"

COLUMNS = "(lane_key, ready)"
TABLES = "pulse_django_limiter, pulse_django_bucket"
GRANT_TABLES = (
    grant_like("SELECT", "pulse_django_queue", f"SELECT ON {TABLES}"),
    # Those who may claim.
    grant_like_column("UPDATE", "pulse_django_job_hot", "lease_until", f"INSERT, UPDATE, DELETE ON {TABLES}"),
    grant_like("UPDATE", "pulse_django_job_hot", f"INSERT, UPDATE, DELETE ON {TABLES}"),
)
GRANT_COLUMNS = (
    grant_like_column("INSERT", "pulse_django_job_hot", "max_attempts", f"INSERT {COLUMNS} ON pulse_django_job_hot"),
    grant_like_column("UPDATE", "pulse_django_job_hot", "args", f"UPDATE {COLUMNS} ON pulse_django_job_hot"),
    grant_like_column("UPDATE", "pulse_django_job_hot", "next_run_at", "UPDATE (ready) ON pulse_django_job_hot"),
)
SAME_OWNER = same_owner("TABLE pulse_django_limiter", "TABLE pulse_django_bucket")

# Each claim of a limiter with a rate updates a row.
STORAGE = """
ALTER TABLE pulse_django_bucket SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200
)
"""


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0012_index_expiry_and_labels")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Limiter",
            fields=[
                (
                    "name",
                    pulse_django.store.sql_functions.ShortText(
                        db_collation="C", max_length=100, primary_key=True, serialize=False
                    ),
                ),
                ("numbers", models.JSONField(default=dict)),
                ("declared_at", models.DateTimeField(blank=True, null=True)),
                (
                    "declared_in",
                    pulse_django.store.sql_functions.ShortText(blank=True, db_default="", default="", max_length=200),
                ),
                ("override", models.JSONField(blank=True, null=True)),
                ("override_until", models.DateTimeField(blank=True, null=True)),
                (
                    "overridden_by",
                    pulse_django.store.sql_functions.ShortText(blank=True, db_default="", default="", max_length=150),
                ),
                ("override_reason", models.TextField(blank=True, db_default="", default="")),
                ("half_open", models.BooleanField(db_default=False, default=False)),
                ("failures", models.PositiveIntegerField(db_default=0, default=0)),
                ("failures_since", models.DateTimeField(blank=True, null=True)),
                ("closed_until", models.DateTimeField(blank=True, null=True)),
                ("closed_reason", models.TextField(blank=True, db_default="", default="")),
            ],
            options={"verbose_name": "limit", "verbose_name_plural": "limits"},
        ),
        migrations.CreateModel(
            name="Bucket",
            fields=[
                (
                    "scope",
                    pulse_django.store.sql_functions.ShortText(
                        db_collation="C", max_length=200, primary_key=True, serialize=False
                    ),
                ),
                ("tokens", models.FloatField()),
                ("at", models.DateTimeField()),
            ],
            options={"default_permissions": ()},
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(SAME_OWNER, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT_TABLES, migrations.RunSQL.noop),
        # Last: every claim waits from here to the end of the migration.
        migrations.AddField(
            "Job",
            "lane_key",
            pulse_django.store.sql_functions.ShortText(
                db_collation="C", db_default="", default="", editable=False, max_length=200
            ),
        ),
        migrations.AddField("Job", "ready", models.BooleanField(db_default=True, default=True, editable=False)),
        migrations.RunSQL(GRANT_COLUMNS, migrations.RunSQL.noop),
    ]
