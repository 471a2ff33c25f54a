"""Add the tables of schedules, of their ticks, and of whose code they follow."""

import django.db.models.deletion
from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like, same_owner

# Watchdogs and those who ask the conditions read these tables.
GRANT_AGAIN = grant_like(
    "SELECT",
    "pulse_django_minute",
    "SELECT ON pulse_django_schedule, pulse_django_tick, pulse_django_declaration",
)
SAME_OWNER = same_owner("TABLE pulse_django_schedule", "TABLE pulse_django_tick", "TABLE pulse_django_declaration")


class Migration(PostgresMigration):
    dependencies = [
        ("pulse_django", "0006_duties"),
    ]

    operations = [
        migrations.CreateModel(
            name="Declaration",
            fields=[
                (
                    "scope",
                    pulse_django.store.sql_functions.ShortText(max_length=200, primary_key=True, serialize=False),
                ),
                ("worker", pulse_django.store.sql_functions.ShortText(max_length=160)),
                ("booted_at", models.DateTimeField()),
                ("fingerprint", pulse_django.store.sql_functions.ShortText(max_length=64)),
                ("declared_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
            ],
            options={
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", pulse_django.store.sql_functions.ShortText(max_length=100, unique=True, verbose_name="name")),
                ("task", pulse_django.store.sql_functions.ShortText(max_length=200, verbose_name="task")),
                (
                    "args",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value([], models.JSONField()),
                        default=list,
                        verbose_name="positional arguments",
                    ),
                ),
                (
                    "kwargs",
                    models.JSONField(
                        blank=True,
                        db_default=models.Value({}, models.JSONField()),
                        default=dict,
                        verbose_name="arguments",
                    ),
                ),
                (
                    "queue",
                    pulse_django.store.sql_functions.ShortText(
                        blank=True, max_length=100, null=True, verbose_name="queue"
                    ),
                ),
                ("priority", models.SmallIntegerField(blank=True, null=True, verbose_name="priority")),
                (
                    "cron",
                    pulse_django.store.sql_functions.ShortText(
                        blank=True, max_length=200, null=True, verbose_name="cron expression"
                    ),
                ),
                (
                    "tz",
                    pulse_django.store.sql_functions.ShortText(
                        blank=True, max_length=64, null=True, verbose_name="time zone"
                    ),
                ),
                ("every", models.DurationField(blank=True, null=True, verbose_name="interval")),
                ("phase", models.DurationField(blank=True, null=True, verbose_name="phase")),
                (
                    "missed",
                    pulse_django.store.sql_functions.ShortText(
                        choices=[
                            ("once", "the latest runs"),
                            ("skip", "none runs"),
                            ("all", "each runs, the oldest first"),
                        ],
                        db_default="once",
                        default="once",
                        max_length=8,
                        verbose_name="missed ticks",
                    ),
                ),
                ("grace", models.DurationField(blank=True, null=True, verbose_name="grace")),
                (
                    "overlap",
                    pulse_django.store.sql_functions.ShortText(
                        choices=[
                            ("skip", "skip the run"),
                            ("wait", "wait for the last run, then run once"),
                            ("cancel", "cancel the last run, then run"),
                            ("allow", "run both"),
                        ],
                        db_default="skip",
                        default="skip",
                        max_length=8,
                        verbose_name="overlap",
                    ),
                ),
                ("jitter", models.DurationField(blank=True, null=True, verbose_name="jitter")),
                ("starts_at", models.DateTimeField(blank=True, null=True, verbose_name="starts")),
                ("ends_at", models.DateTimeField(blank=True, null=True, verbose_name="ends")),
                ("next_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("waiting_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("last_job_id", models.BigIntegerField(blank=True, editable=False, null=True)),
                ("declared", models.JSONField(blank=True, editable=False, null=True)),
                (
                    "declared_in",
                    pulse_django.store.sql_functions.ShortText(blank=True, editable=False, max_length=200, null=True),
                ),
                (
                    "overrides",
                    models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict, editable=False),
                ),
                ("gone_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("paused_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("paused_until", models.DateTimeField(blank=True, editable=False, null=True)),
                ("pause_reason", models.TextField(blank=True, db_default="", default="", editable=False)),
                (
                    "owner",
                    pulse_django.store.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200, verbose_name="owner"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp(), editable=False),
                ),
                (
                    "changed_at",
                    models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp(), editable=False),
                ),
                (
                    "changed_by",
                    pulse_django.store.sql_functions.ShortText(
                        blank=True, db_default="", default="", editable=False, max_length=200
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "indexes": [
                    models.Index(
                        models.F("next_at"),
                        models.F("id"),
                        condition=models.Q(("next_at__isnull", False)),
                        name="pulse_schedule_due",
                    ),
                    models.Index(
                        models.F("id"), condition=models.Q(("waiting_at__isnull", False)), name="pulse_schedule_waiting"
                    ),
                    models.Index(
                        models.F("owner"), condition=models.Q(("owner", ""), _negated=True), name="pulse_schedule_owner"
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("cron__isnull", False), ("every__isnull", True), ("tz__isnull", False)),
                            models.Q(("cron__isnull", True), ("every__isnull", False)),
                            _connector="OR",
                        ),
                        name="pulse_schedule_cron_or_every",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("paused_at__isnull", False),
                            models.Q(("pause_reason", ""), ("paused_until__isnull", True)),
                            _connector="OR",
                        ),
                        name="pulse_schedule_pause_has_a_start",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("gone_at__isnull", True), ("next_at", None), _connector="OR"),
                        name="pulse_schedule_gone_is_not_due",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Tick",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schedule_id", "at", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("at", models.DateTimeField()),
                (
                    "outcome",
                    pulse_django.store.sql_functions.ShortText(
                        choices=[
                            ("FIRED", "Fired"),
                            ("WAITING", "Waiting"),
                            ("MISSED", "Missed"),
                            ("OVERLAP", "Overlap"),
                            ("PAUSED", "Paused"),
                            ("MANUAL", "Manual"),
                            ("REFUSED", "Refused"),
                        ],
                        max_length=8,
                    ),
                ),
                ("job_id", models.BigIntegerField(blank=True, null=True)),
                ("decided_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("note", models.TextField(blank=True, db_default="", default="")),
                (
                    "schedule",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ticks",
                        to="pulse_django.schedule",
                    ),
                ),
            ],
            options={
                "verbose_name": "tick",
                "verbose_name_plural": "ticks",
                "default_permissions": (),
            },
        ),
        migrations.RunSQL(GRANT_AGAIN, migrations.RunSQL.noop),
        migrations.RunSQL(SAME_OWNER, migrations.RunSQL.noop),
    ]
