"""Add batches, workflows, durable steps and events, and the columns of jobs that belong to them.

No column rewrites the table. The indexes of jobs follow in the next migration, which builds them while the queue works.
"""

import django.db.models.deletion
from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._eras import index_batches_of_days, index_no_batches_of_days
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, grant_like_column, same_owner

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"

TABLES = (
    "pulse_django_batch", "pulse_django_dependency", "pulse_django_unresolved", "pulse_django_step",
    "pulse_django_event",
)  # fmt: skip
ALL = ", ".join(TABLES)
COLUMNS = "(batch_id, node, awaited)"
GRANTS = (
    grant_like("SELECT", "pulse_django_queue", f"SELECT ON {ALL}"),
    # Those who may enqueue: into batches, with needs. In some projects they may insert, and read nothing else.
    grant_like_column("INSERT", "pulse_django_job_hot", "max_attempts", f"SELECT, INSERT, UPDATE, DELETE ON {ALL}"),
    grant_like("INSERT", "pulse_django_job_hot", f"SELECT, INSERT, UPDATE, DELETE ON {ALL}"),
    # Those who may end jobs.
    grant_like_column("UPDATE", "pulse_django_job_hot", "lease_until", f"SELECT, INSERT, UPDATE, DELETE ON {ALL}"),
    grant_like("UPDATE", "pulse_django_job_hot", f"SELECT, INSERT, UPDATE, DELETE ON {ALL}"),
    grant_like("DELETE", "pulse_django_job_hot", f"SELECT, INSERT, UPDATE, DELETE ON {ALL}"),
    grant_like_column(
        "INSERT", "pulse_django_job_hot", "max_attempts", f"INSERT {COLUMNS}, UPDATE (awaited) ON pulse_django_job_hot"
    ),
    grant_like_column("UPDATE", "pulse_django_job_hot", "lease_until", "UPDATE (awaited) ON pulse_django_job_hot"),
)
SAME_OWNER = same_owner(*(f"TABLE {table}" for table in TABLES))

# Its rows live for milliseconds.
STORAGE = """
ALTER TABLE pulse_django_unresolved SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
ALTER TABLE pulse_django_batch SET (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02)
"""


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0019_paused_tasks")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Dependency",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField()),
                ("needs", models.BigIntegerField(null=True)),
                ("needs_batch", models.BigIntegerField(null=True)),
                ("needs_event", pulse_django.store.sql_functions.ShortText(max_length=200, null=True)),
                ("name", pulse_django.store.sql_functions.ShortText(db_default="", default="", max_length=100)),
                (
                    "on_dead",
                    pulse_django.store.sql_functions.ShortText(db_default="hold", default="hold", max_length=8),
                ),
                (
                    "moment",
                    pulse_django.store.sql_functions.ShortText(db_default="closed", default="closed", max_length=8),
                ),
                ("until", models.DateTimeField(null=True)),
                ("met_at", models.DateTimeField(null=True)),
                ("met", pulse_django.store.sql_functions.ShortText(max_length=10, null=True)),
            ],
            options={
                "db_table": "pulse_django_dependency",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                ("name", pulse_django.store.sql_functions.ShortText(max_length=200, primary_key=True, serialize=False)),
                ("payload", models.JSONField(blank=True, null=True)),
                ("sent_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                (
                    "sent_by",
                    pulse_django.store.sql_functions.ShortText(blank=True, db_default="", default="", max_length=150),
                ),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
            },
        ),
        migrations.CreateModel(
            name="Step",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "job_id", "name", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("job_id", models.BigIntegerField()),
                ("name", pulse_django.store.sql_functions.ShortText(max_length=100)),
                ("number", models.IntegerField()),
                ("attempt", models.IntegerField()),
                ("token", models.BigIntegerField()),
                ("result", models.JSONField(null=True)),
                ("at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("seconds", models.FloatField(null=True)),
            ],
            options={
                "db_table": "pulse_django_step",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="StoredBatch",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", pulse_django.store.sql_functions.ShortText(max_length=200)),
                (
                    "kind",
                    pulse_django.store.sql_functions.ShortText(db_default="batch", default="batch", max_length=16),
                ),
                ("context", models.JSONField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("sealed_at", models.DateTimeField(blank=True, null=True)),
                ("died_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("closed_at", models.DateTimeField(blank=True, null=True)),
                ("cancelled_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_reason", models.TextField(blank=True, db_default="", default="")),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("added", models.BigIntegerField(db_default=0, default=0)),
                ("completed", models.BigIntegerField(db_default=0, default=0)),
                ("cancelled", models.BigIntegerField(db_default=0, default=0)),
            ],
            options={
                "verbose_name": "workflow",
                "verbose_name_plural": "workflows",
                "db_table": "pulse_django_batch",
            },
        ),
        migrations.CreateModel(
            name="Unresolved",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField(null=True)),
                ("batch_id", models.BigIntegerField(null=True)),
                ("event", pulse_django.store.sql_functions.ShortText(max_length=200, null=True)),
                ("added", models.IntegerField(db_default=0, default=0)),
                ("completed", models.IntegerField(db_default=0, default=0)),
                ("cancelled", models.IntegerField(db_default=0, default=0)),
                ("died", models.BooleanField(db_default=False, default=False)),
            ],
            options={
                "db_table": "pulse_django_unresolved",
                "default_permissions": (),
            },
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(fields=["job_id"], name="pulse_dependency_job"),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(
                condition=models.Q(("met_at__isnull", True)), fields=["job_id"], name="pulse_dependency_unmet"
            ),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(
                condition=models.Q(("met_at__isnull", True), ("needs__isnull", False)),
                fields=["needs"],
                name="pulse_dependency_needs",
            ),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(
                condition=models.Q(("met_at__isnull", True), ("needs_batch__isnull", False)),
                fields=["needs_batch"],
                name="pulse_dependency_batch",
            ),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(
                condition=models.Q(("met_at__isnull", True), ("needs_event__isnull", False)),
                fields=["needs_event"],
                name="pulse_dependency_event",
            ),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(
                condition=models.Q(("met__in", ["dead", "cancelled"]), models.Q(("on_dead", "go_on"), _negated=True)),
                fields=["job_id"],
                name="pulse_dependency_lost",
            ),
        ),
        migrations.AddIndex(
            model_name="dependency",
            index=models.Index(
                condition=models.Q(("met_at__isnull", True), ("until__isnull", False)),
                fields=["until"],
                name="pulse_dependency_until",
            ),
        ),
        migrations.AddConstraint(
            model_name="dependency",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("needs__isnull", False), ("needs_batch__isnull", True), ("needs_event__isnull", True)),
                    models.Q(("needs__isnull", True), ("needs_batch__isnull", False), ("needs_event__isnull", True)),
                    models.Q(("needs__isnull", True), ("needs_batch__isnull", True), ("needs_event__isnull", False)),
                    _connector="OR",
                ),
                name="pulse_dependency_needs_one_thing",
            ),
        ),
        migrations.AddConstraint(
            model_name="dependency",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("moment__in", ["closed", "dead", "ended"]), ("on_dead__in", ["hold", "cancel", "go_on"])
                ),
                name="pulse_dependency_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="dependency",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("met__isnull", True), ("met_at__isnull", True)),
                    models.Q(("met__in", ["done", "dead", "cancelled", "timed out"]), ("met_at__isnull", False)),
                    _connector="OR",
                ),
                name="pulse_dependency_met_has_an_instant",
            ),
        ),
        migrations.AddIndex(
            model_name="event",
            index=models.Index(fields=["sent_at"], name="pulse_event_sent"),
        ),
        migrations.AddField(
            model_name="storedbatch",
            name="parent",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="children",
                to="pulse_django.storedbatch",
            ),
        ),
        migrations.AddIndex(
            model_name="unresolved",
            index=models.Index(
                condition=models.Q(("batch_id__isnull", False)), fields=["batch_id"], name="pulse_unresolved_batch"
            ),
        ),
        migrations.AddIndex(
            model_name="storedbatch",
            index=models.Index(condition=models.Q(("closed_at__isnull", True)), fields=["id"], name="pulse_batch_open"),
        ),
        migrations.AddIndex(
            model_name="storedbatch",
            index=models.Index(
                condition=models.Q(("closed_at__isnull", True), ("paused_at__isnull", False)),
                fields=["id"],
                name="pulse_batch_paused",
            ),
        ),
        migrations.AddIndex(
            model_name="storedbatch",
            index=models.Index(
                condition=models.Q(("closed_at__isnull", False)), fields=["closed_at"], name="pulse_batch_closed"
            ),
        ),
        migrations.AddConstraint(
            model_name="storedbatch",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("closed_at__isnull", True),
                    models.Q(("ended_at__isnull", False), ("sealed_at__isnull", False)),
                    _connector="OR",
                ),
                name="pulse_batch_closed_after_sealed",
            ),
        ),
        migrations.RunSQL(STORAGE, migrations.RunSQL.noop),
        migrations.RunSQL(SAME_OWNER, migrations.RunSQL.noop),
        migrations.RunPython(index_batches_of_days, index_no_batches_of_days),
        # Last: every claim waits from here to the end of the migration.
        migrations.AddField(
            model_name="job",
            name="awaited",
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddField(
            model_name="job",
            name="node",
            field=pulse_django.store.sql_functions.ShortText(blank=True, editable=False, max_length=100, null=True),
        ),
        migrations.AlterField(
            model_name="job",
            name="status",
            field=pulse_django.store.sql_functions.ShortText(
                choices=[
                    ("WAITING", "Waiting"),
                    ("PENDING", "Pending"),
                    ("RUNNING", "Running"),
                    ("RETRYING", "Retrying"),
                    ("COMPLETED", "Completed"),
                    ("DEAD_LETTERED", "Dead lettered"),
                    ("CANCELLED", "Cancelled"),
                ],
                db_default="PENDING",
                default="PENDING",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="job",
            name="batch",
            field=models.ForeignKey(
                blank=True,
                db_constraint=False,
                db_index=False,
                editable=False,
                null=True,
                on_delete=django.db.models.deletion.DO_NOTHING,
                related_name="members",
                to="pulse_django.storedbatch",
            ),
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
        migrations.RunSQL(migrations.RunSQL.noop, LIMIT_LOCKS),  # on the way back this is the first
    ]
