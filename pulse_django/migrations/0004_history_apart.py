"""Make the table of jobs the hot partition of a table that is partitioned by era, and the ledger a view.

No row is moved: what was over before stays in the hot partition until it is pruned. The tables are locked for some
milliseconds.
"""

import django.db.models.deletion
from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations import _eras
from pulse_django.migrations._postgresql import PostgresMigration


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0003_prepare_eras")]

    operations = [
        migrations.RunPython(_eras.split, _eras.join),
        migrations.SeparateDatabaseAndState(
            state_operations=[
                migrations.RemoveConstraint("Job", "pulse_job_one_per_key"),
                migrations.RenameModel("Attempt", "StoredAttempt"),
                migrations.AlterModelTable("StoredAttempt", "pulse_django_attempt"),
                migrations.AlterModelOptions(
                    "StoredAttempt",
                    {"default_permissions": ()},
                ),
                migrations.AlterField(
                    "StoredAttempt",
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="stored_attempts",
                        to="pulse_django.job",
                    ),
                ),
            ]
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("number", models.IntegerField()),
                ("token", models.BigIntegerField()),
                ("worker", pulse_django.store.sql_functions.ShortText(max_length=160)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField()),
                (
                    "outcome",
                    pulse_django.store.sql_functions.ShortText(
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("RELEASED", "Released"),
                            ("CANCELLED", "Cancelled"),
                            ("DISCARDED", "Discarded"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "error_class",
                    pulse_django.store.sql_functions.ShortText(blank=True, db_default="", default="", max_length=200),
                ),
                ("message", models.TextField(blank=True, db_default="", default="")),
                ("traceback", models.TextField(blank=True, db_default="", default="")),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "late_outcome",
                    pulse_django.store.sql_functions.ShortText(
                        blank=True,
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("RELEASED", "Released"),
                            ("CANCELLED", "Cancelled"),
                            ("DISCARDED", "Discarded"),
                        ],
                        db_default="",
                        default="",
                        max_length=16,
                    ),
                ),
                ("late_at", models.DateTimeField(blank=True, null=True)),
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "db_table": "pulse_django_ledger",
                "managed": False,
            },
        ),
    ]
