"""All tables. ``make initial`` writes this file: change the models, or ``_schema.py``."""

import datetime

import django.db.migrations.operations.special
import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import pulse_django.limits.models
import pulse_django.migrations._days
import pulse_django.migrations._schema
import pulse_django.queue.database.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration


class Migration(PostgresMigration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunPython(
            code=pulse_django.migrations._days.refuse_distributed_schema,
            reverse_code=django.db.migrations.operations.special.RunPython.noop,
        ),
        migrations.CreateModel(
            name="Amendment",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField()),
                ("at", models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp())),
                ("attempts", models.IntegerField()),
                ("args", models.JSONField()),
                ("kwargs", models.JSONField()),
                (
                    "sensitive",
                    pulse_django.queue.database.sql_functions.ShortText(blank=True, max_length=2000, null=True),
                ),
                (
                    "by",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200
                    ),
                ),
                ("reason", models.TextField(blank=True, db_default="", default="")),
            ],
            options={
                "verbose_name": "amendment",
                "verbose_name_plural": "amendments",
                "default_permissions": (),
                "indexes": [models.Index(fields=["job_id", "id"], name="pulse_amendment_job")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("args"), 33554432
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("kwargs"), 33554432
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("reason"), 16384
                            ),
                        ),
                        name="pulse_amendment_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_amendment_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Limiter",
            fields=[
                (
                    "name",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_collation="C", max_length=100, primary_key=True, serialize=False
                    ),
                ),
                ("numbers", models.JSONField(default=dict)),
                ("declared_at", models.DateTimeField(blank=True, null=True)),
                (
                    "declared_in",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200
                    ),
                ),
                ("override", models.JSONField(blank=True, null=True)),
                ("override_until", models.DateTimeField(blank=True, null=True)),
                (
                    "overridden_by",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=150
                    ),
                ),
                ("override_reason", models.TextField(blank=True, db_default="", default="")),
                ("half_open", models.BooleanField(db_default=False, default=False)),
                ("failures", models.PositiveIntegerField(db_default=0, default=0)),
                ("failures_since", models.DateTimeField(blank=True, null=True)),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                ("pause_reason", models.TextField(blank=True, db_default="", default="")),
            ],
            options={
                "verbose_name": "limit",
                "verbose_name_plural": "limits",
                "permissions": [("pulse_view_limits", "Can see limits"), ("pulse_change_limits", "Can change limits")],
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "declared_at", "override_until", "failures_since", "paused_until"
                                ),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest(
                                    "declared_at", "override_until", "failures_since", "paused_until"
                                ),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_limiter_instants_can_be_read",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("override_reason"), 16384
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("pause_reason"), 16384
                            ),
                        ),
                        name="pulse_limiter_reasons_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(
                                pulse_django.queue.database.sql_functions.JsonType("numbers"), models.Value("object")
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("numbers"), 2000
                            ),
                            django.db.models.lookups.Exact(
                                pulse_django.queue.database.sql_functions.JsonType("override"), models.Value("object")
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("override"), 2000
                            ),
                        ),
                        name="pulse_limiter_numbers_are_bounded",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Bucket",
            fields=[
                (
                    "scope",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_collation="C", max_length=200, primary_key=True, serialize=False
                    ),
                ),
                ("tokens", models.FloatField()),
                ("at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_bucket_instants_can_be_read",
                    )
                ],
            },
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
                ("kind", pulse_django.queue.database.sql_functions.ShortText(max_length=5)),
                ("length", models.SmallIntegerField()),
                ("began_at", models.DateTimeField()),
                ("name", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                ("enqueued", models.IntegerField()),
                ("started", models.IntegerField()),
                ("succeeded", models.IntegerField()),
                ("failed", models.IntegerField()),
                ("died", models.IntegerField()),
                ("ran_seconds", models.FloatField()),
                ("ran", pulse_django.queue.database.sql_functions.IntegerList()),
                ("waited_seconds", models.FloatField()),
                ("waited", pulse_django.queue.database.sql_functions.IntegerList()),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("ran"), 16384
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("waited"), 16384
                            ),
                        ),
                        name="pulse_traffic_buckets_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("began_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("began_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_traffic_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Release",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("version", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                ("seen_at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("seen_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("seen_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_release_instants_can_be_read",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Pause",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "task",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200
                    ),
                ),
                (
                    "queue",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=100
                    ),
                ),
                (
                    "lane_key",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_collation="C", db_default="", default="", max_length=200
                    ),
                ),
                (
                    "paused_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                ("reason", models.TextField(blank=True, db_default="", default="")),
                (
                    "paused_by",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=150
                    ),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("lane_key", "task", "queue"), name="pulse_pause_once"),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("lane_key", ""), models.Q(("queue", ""), ("task", ""), _negated=True)),
                            models.Q(models.Q(("lane_key", ""), _negated=True), ("queue", ""), ("task", "")),
                            _connector="OR",
                        ),
                        name="pulse_pause_is_of_something",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("reason"), 16384
                            )
                        ),
                        name="pulse_pause_reason_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least("paused_at", "paused_until"),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest("paused_at", "paused_until"),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_pause_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Schedule",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "name",
                    pulse_django.queue.database.sql_functions.ShortText(
                        max_length=100, unique=True, verbose_name="name"
                    ),
                ),
                ("task", pulse_django.queue.database.sql_functions.ShortText(max_length=200, verbose_name="task")),
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
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, max_length=100, null=True, verbose_name="queue"
                    ),
                ),
                ("priority", models.SmallIntegerField(blank=True, null=True, verbose_name="priority")),
                (
                    "cron",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, max_length=200, null=True, verbose_name="cron expression"
                    ),
                ),
                (
                    "tz",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, max_length=64, null=True, verbose_name="time zone"
                    ),
                ),
                ("every", models.DurationField(blank=True, null=True, verbose_name="interval")),
                ("phase", models.DurationField(blank=True, null=True, verbose_name="phase")),
                (
                    "missed",
                    pulse_django.queue.database.sql_functions.ShortText(
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
                    pulse_django.queue.database.sql_functions.ShortText(
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
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, editable=False, max_length=200, null=True
                    ),
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
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200, verbose_name="owner"
                    ),
                ),
                (
                    "created_at",
                    models.DateTimeField(
                        db_default=pulse_django.queue.database.sql_functions.ClockTimestamp(), editable=False
                    ),
                ),
                (
                    "changed_at",
                    models.DateTimeField(
                        db_default=pulse_django.queue.database.sql_functions.ClockTimestamp(), editable=False
                    ),
                ),
                (
                    "changed_by",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", editable=False, max_length=200
                    ),
                ),
            ],
            options={
                "verbose_name": "schedule",
                "verbose_name_plural": "schedules",
                "permissions": [
                    ("pulse_view_schedules", "Can see schedules"),
                    ("pulse_add_schedules", "Can add schedules"),
                    ("pulse_change_schedules", "Can change schedules"),
                    ("pulse_delete_schedules", "Can delete schedules"),
                ],
                "default_permissions": (),
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
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("pause_reason"), 16384
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("args"), 16777216
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("kwargs"), 16777216
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("declared"), 16777216
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("overrides"), 16777216
                            ),
                        ),
                        name="pulse_schedule_documents_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("starts_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("starts_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("ends_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("ends_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("next_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("next_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("waiting_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("waiting_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("last_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("last_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("gone_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("gone_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("paused_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("paused_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("paused_until__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("paused_until__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("created_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("created_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("changed_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("changed_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_schedule_instants_are_finite",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("every__gte", datetime.timedelta(0)),
                            ("every__lt", datetime.timedelta(days=365001)),
                            ("phase__gte", datetime.timedelta(0)),
                            ("phase__lt", datetime.timedelta(days=365001)),
                            ("grace__gte", datetime.timedelta(0)),
                            ("grace__lt", datetime.timedelta(days=365001)),
                            ("jitter__gte", datetime.timedelta(0)),
                            ("jitter__lt", datetime.timedelta(days=365001)),
                        ),
                        name="pulse_schedule_durations_are_finite",
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
                    pulse_django.queue.database.sql_functions.ShortText(
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
                (
                    "decided_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
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
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("note"), 16384
                            )
                        ),
                        name="pulse_tick_note_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("decided_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("decided_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_tick_instants_are_finite",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Departure",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField(unique=True)),
                ("to_shard", models.IntegerField()),
                ("rows", models.JSONField()),
                ("at", models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp())),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_departure_instants_can_be_read",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Arrival",
            fields=[
                ("departure_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("is_refused", models.BooleanField(db_default=False, default=False)),
                ("at", models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp())),
                ("forgotten_at", models.DateTimeField(null=True)),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least("at", "forgotten_at"),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest("at", "forgotten_at"),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_arrival_instants_can_be_read",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DeclaredTask",
            fields=[
                (
                    "name",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_collation="C", max_length=200, primary_key=True, serialize=False
                    ),
                ),
                ("options", models.JSONField()),
                ("declared_in", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
            ],
            options={
                "db_table": "pulse_django_declared_task",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("options"), 262144
                            )
                        ),
                        name="pulse_declared_task_is_bounded",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="IdempotencyKey",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("task", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                ("key", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                ("job_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "pulse_django_key",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Window",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("task", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                ("key", pulse_django.queue.database.sql_functions.ShortText(max_length=64)),
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
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("until__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("until__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_window_instants_can_be_read",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredBatch",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                (
                    "kind",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_default="batch", default="batch", max_length=16
                    ),
                ),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="children",
                        to="pulse_django.storedbatch",
                    ),
                ),
                ("context", models.JSONField(blank=True, null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                ("sealed_at", models.DateTimeField(blank=True, null=True)),
                ("died_at", models.DateTimeField(blank=True, null=True)),
                ("ended_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
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
                "permissions": [("pulse_view_workflows", "Can see workflows")],
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True)), fields=["id"], name="pulse_batch_open"
                    ),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", False)),
                        fields=["finished_at"],
                        name="pulse_batch_finished",
                    ),
                    models.Index(
                        condition=models.Q(("finished_at__isnull", True), ("paused_at__isnull", False)),
                        fields=["id"],
                        name="pulse_batch_paused",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("finished_at__isnull", True),
                            models.Q(("ended_at__isnull", False), ("sealed_at__isnull", False)),
                            _connector="OR",
                        ),
                        name="pulse_batch_finished_after_sealed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("cancel_reason"), 16384
                            )
                        ),
                        name="pulse_batch_reason_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.StoredSize("context"), 16777216
                            ),
                            models.Q(
                                ("added__gt", 0),
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.TextSize("context"), 16777216
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="pulse_batch_context_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "created_at",
                                    "sealed_at",
                                    "died_at",
                                    "ended_at",
                                    "finished_at",
                                    "cancelled_at",
                                    "paused_at",
                                ),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest(
                                    "created_at",
                                    "sealed_at",
                                    "died_at",
                                    "ended_at",
                                    "finished_at",
                                    "cancelled_at",
                                    "paused_at",
                                ),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_batch_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Dependency",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField()),
                ("needs", models.BigIntegerField(null=True)),
                ("needs_batch", models.BigIntegerField(null=True)),
                ("needs_event", pulse_django.queue.database.sql_functions.ShortText(max_length=200, null=True)),
                (
                    "name",
                    pulse_django.queue.database.sql_functions.ShortText(db_default="", default="", max_length=100),
                ),
                (
                    "on_need_failed",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_default="wait", default="wait", max_length=8
                    ),
                ),
                (
                    "moment",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_default="finished", default="finished", max_length=8
                    ),
                ),
                ("until", models.DateTimeField(null=True)),
                ("met_at", models.DateTimeField(null=True)),
                ("met", pulse_django.queue.database.sql_functions.ShortText(max_length=10, null=True)),
            ],
            options={
                "db_table": "pulse_django_dependency",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["job_id"], name="pulse_dependency_job"),
                    models.Index(
                        condition=models.Q(("met_at__isnull", True)), fields=["job_id"], name="pulse_dependency_unmet"
                    ),
                    models.Index(
                        condition=models.Q(("met_at__isnull", True), ("needs__isnull", False)),
                        fields=["needs"],
                        name="pulse_dependency_needs",
                    ),
                    models.Index(
                        condition=models.Q(("met_at__isnull", True), ("needs_batch__isnull", False)),
                        fields=["needs_batch"],
                        name="pulse_dependency_batch",
                    ),
                    models.Index(
                        condition=models.Q(("met_at__isnull", True), ("needs_event__isnull", False)),
                        fields=["needs_event"],
                        name="pulse_dependency_event",
                    ),
                    models.Index(
                        condition=models.Q(
                            ("met__in", ["dead", "cancelled"]), models.Q(("on_need_failed", "continue"), _negated=True)
                        ),
                        fields=["job_id"],
                        name="pulse_dependency_lost",
                    ),
                    models.Index(
                        condition=models.Q(("met_at__isnull", True), ("until__isnull", False)),
                        fields=["until"],
                        name="pulse_dependency_until",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("needs__isnull", False), ("needs_batch__isnull", True), ("needs_event__isnull", True)
                            ),
                            models.Q(
                                ("needs__isnull", True), ("needs_batch__isnull", False), ("needs_event__isnull", True)
                            ),
                            models.Q(
                                ("needs__isnull", True), ("needs_batch__isnull", True), ("needs_event__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="pulse_dependency_needs_one_thing",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("moment__in", ["finished", "dead", "ended"]),
                            ("on_need_failed__in", ["wait", "cancel", "continue"]),
                        ),
                        name="pulse_dependency_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("met__isnull", True), ("met_at__isnull", True)),
                            models.Q(
                                ("met__in", ["done", "dead", "cancelled", "timed out"]), ("met_at__isnull", False)
                            ),
                            _connector="OR",
                        ),
                        name="pulse_dependency_met_has_an_instant",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least("until", "met_at"),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest("until", "met_at"),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_dependency_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Unresolved",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("job_id", models.BigIntegerField(null=True)),
                ("batch_id", models.BigIntegerField(null=True)),
                ("event", pulse_django.queue.database.sql_functions.ShortText(max_length=200, null=True)),
                ("added", models.IntegerField(db_default=0, default=0)),
                ("completed", models.IntegerField(db_default=0, default=0)),
                ("cancelled", models.IntegerField(db_default=0, default=0)),
                ("died", models.BooleanField(db_default=False, default=False)),
            ],
            options={
                "db_table": "pulse_django_unresolved",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("batch_id__isnull", False)),
                        fields=["batch_id"],
                        name="pulse_unresolved_batch",
                    )
                ],
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
                ("name", pulse_django.queue.database.sql_functions.ShortText(max_length=100)),
                ("number", models.IntegerField()),
                ("attempt", models.IntegerField()),
                ("token", models.BigIntegerField()),
                ("result", models.JSONField(null=True)),
                ("at", models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp())),
                ("seconds", models.FloatField(null=True)),
            ],
            options={
                "db_table": "pulse_django_step",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("result"), 16777216
                            )
                        ),
                        name="pulse_step_result_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_step_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Event",
            fields=[
                (
                    "name",
                    pulse_django.queue.database.sql_functions.ShortText(
                        max_length=200, primary_key=True, serialize=False
                    ),
                ),
                ("payload", models.JSONField(blank=True, null=True)),
                (
                    "sent_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                (
                    "sent_by",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=150
                    ),
                ),
            ],
            options={
                "verbose_name": "event",
                "verbose_name_plural": "events",
                "default_permissions": (),
                "indexes": [models.Index(fields=["sent_at"], name="pulse_event_sent")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("payload"), 16777216
                            )
                        ),
                        name="pulse_event_payload_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("sent_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("sent_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_event_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("era", models.IntegerField(db_default=0, default=0, editable=False)),
                ("task", pulse_django.queue.database.sql_functions.ShortText(max_length=200)),
                (
                    "queue",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_default="default", default="default", max_length=100
                    ),
                ),
                ("priority", models.SmallIntegerField(db_default=0, default=0)),
                (
                    "lane_key",
                    pulse_django.queue.database.sql_functions.ShortText(
                        db_collation="C", db_default="", default="", editable=False, max_length=200
                    ),
                ),
                ("ready", models.BooleanField(db_default=True, default=True, editable=False, null=True)),
                ("args", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                ("kwargs", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("payload_bytes", models.IntegerField(blank=True, editable=False, null=True)),
                (
                    "parent",
                    models.ForeignKey(
                        blank=True,
                        db_constraint=False,
                        db_index=False,
                        null=True,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="children",
                        to="pulse_django.job",
                    ),
                ),
                ("trace", pulse_django.queue.database.sql_functions.ShortText(blank=True, max_length=64, null=True)),
                (
                    "sensitive",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, editable=False, max_length=2000, null=True
                    ),
                ),
                ("give_up_after", models.DurationField(blank=True, editable=False, null=True)),
                (
                    "tags",
                    pulse_django.queue.database.sql_functions.Tags(blank=True, default=list, editable=False, null=True),
                ),
                (
                    "search_terms",
                    pulse_django.queue.database.sql_functions.Tags(blank=True, default=list, editable=False, null=True),
                ),
                ("meta", models.JSONField(blank=True, editable=False, null=True)),
                ("weight", models.SmallIntegerField(db_default=1, default=1, editable=False)),
                (
                    "status",
                    pulse_django.queue.database.sql_functions.ShortText(
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
                (
                    "next_run_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("refunds", models.IntegerField(db_default=0, default=0)),
                ("max_attempts", models.IntegerField(db_default=10, default=10)),
                ("losses", models.IntegerField(db_default=0, default=0)),
                ("max_lost_workers", models.SmallIntegerField(blank=True, null=True)),
                ("count_lost_workers", models.BooleanField(db_default=True, default=True)),
                (
                    "locked_by",
                    pulse_django.queue.database.sql_functions.ShortText(blank=True, max_length=160, null=True),
                ),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("token", models.BigIntegerField(blank=True, null=True)),
                ("lease_ttl", models.DurationField(blank=True, null=True)),
                ("timeout", models.DurationField(blank=True, null=True)),
                ("deadline", models.DateTimeField(blank=True, null=True)),
                ("progress_timeout", models.DurationField(blank=True, null=True)),
                ("progress", models.JSONField(blank=True, null=True)),
                ("progress_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_requested_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_reason", models.TextField(blank=True, db_default="", default="")),
                ("last_error", models.TextField(blank=True, db_default="", default="")),
                ("result", models.JSONField(blank=True, null=True)),
                (
                    "completed_by",
                    pulse_django.queue.database.sql_functions.ShortText(blank=True, max_length=160, null=True),
                ),
                ("completed_token", models.BigIntegerField(blank=True, null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
                ("expires_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("on_dead", models.JSONField(blank=True, editable=False, null=True)),
                (
                    "idempotency_key",
                    pulse_django.queue.database.sql_functions.ShortText(blank=True, max_length=200, null=True),
                ),
                (
                    "unique_key",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, editable=False, max_length=64, null=True
                    ),
                ),
                ("unique_until_start", models.BooleanField(db_default=False, default=False, editable=False)),
                (
                    "batch",
                    models.ForeignKey(
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
                (
                    "node",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, editable=False, max_length=100, null=True
                    ),
                ),
                ("awaited", models.BooleanField(db_default=False, default=False, editable=False)),
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("pulse_view_jobs", "Can see jobs"),
                    ("pulse_delete_jobs", "Can delete dead letters"),
                    ("pulse_retry_jobs", "Can retry dead letters"),
                    ("pulse_cancel_jobs", "Can cancel jobs, and take them from their workers"),
                    ("pulse_schedule_jobs", "Can reschedule and move waiting jobs"),
                    ("pulse_amend_jobs", "Can change the arguments of waiting jobs"),
                    ("pulse_view_arguments", "Can see the arguments and results of jobs"),
                ],
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        models.F("queue"),
                        models.OrderBy(models.F("priority"), descending=True),
                        models.OrderBy(models.F("ready"), descending=True),
                        models.F("lane_key"),
                        models.F("next_run_at"),
                        models.F("id"),
                        condition=models.Q(("status__in", ["PENDING", "RETRYING"])),
                        name="pulse_job_lane",
                    ),
                    models.Index(
                        condition=models.Q(("ready", False), ("status__in", ["PENDING", "RETRYING"])),
                        fields=["next_run_at", "id"],
                        name="pulse_job_unready",
                    ),
                    models.Index(
                        condition=models.Q(("ready__isnull", True), ("status__in", ["PENDING", "RETRYING"])),
                        fields=["task", "queue", "id"],
                        name="pulse_job_aside",
                    ),
                    models.Index(condition=models.Q(("status", "RUNNING")), fields=["id"], name="pulse_job_reap"),
                    models.Index(
                        condition=models.Q(("status", "RUNNING"), models.Q(("lane_key", ""), _negated=True)),
                        fields=["lane_key", "token"],
                        name="pulse_job_held_key",
                    ),
                    models.Index(
                        condition=models.Q(("status", "RUNNING"), models.Q(("lane_key", ""), _negated=True)),
                        fields=["queue", "token"],
                        name="pulse_job_held_queue",
                    ),
                    models.Index(
                        condition=models.Q(("status__in", ["COMPLETED", "DEAD_LETTERED", "CANCELLED"])),
                        fields=["status", "finished_at", "id"],
                        name="pulse_job_retention",
                    ),
                    models.Index(
                        condition=models.Q(("status", "DEAD_LETTERED")),
                        fields=["finished_at", "id"],
                        name="pulse_job_dead_letters",
                    ),
                    models.Index(
                        condition=models.Q(("status", "DEAD_LETTERED")),
                        fields=["queue", "finished_at"],
                        name="pulse_job_dead_in_queue",
                    ),
                    models.Index(
                        condition=models.Q(("parent__isnull", False)), fields=["parent"], name="pulse_job_children"
                    ),
                    models.Index(condition=models.Q(("status", "WAITING")), fields=["id"], name="pulse_job_waiting"),
                    pulse_django.queue.database.sql_functions.TagIndex(
                        condition=models.Q(("tags__isnull", False)), fields=["tags"], name="pulse_job_tags"
                    ),
                    pulse_django.queue.database.sql_functions.TagIndex(
                        condition=models.Q(("search_terms__isnull", False)),
                        fields=["search_terms"],
                        name="pulse_job_search",
                    ),
                    models.Index(
                        condition=models.Q(("last_error", ""), _negated=True), fields=["id"], name="pulse_job_errors"
                    ),
                    models.Index(
                        pulse_django.queue.database.sql_functions.Fingerprint("last_error"),
                        pulse_django.queue.database.sql_functions.InUtc("finished_at"),
                        models.F("id"),
                        condition=models.Q(("status", "DEAD_LETTERED")),
                        name="pulse_job_error_group",
                    ),
                    models.Index(
                        condition=models.Q(("attempts", 0), ("expires_at__isnull", False), ("status", "PENDING")),
                        fields=["expires_at"],
                        name="pulse_job_expiry",
                    ),
                    models.Index(
                        condition=models.Q(("batch__isnull", False), ("finished_at__isnull", True)),
                        fields=["batch", "id"],
                        name="pulse_job_batch_open",
                    ),
                    models.Index(
                        condition=models.Q(("batch__isnull", False), ("finished_at__isnull", False)),
                        fields=["batch", "id"],
                        name="pulse_job_batch_dead",
                    ),
                    models.Index(
                        pulse_django.limits.models.LimiterOf("lane_key"),
                        models.F("token"),
                        condition=models.Q(("status", "RUNNING"), models.Q(("lane_key", ""), _negated=True)),
                        name="pulse_job_held_limit",
                    ),
                ],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "status__in",
                                [
                                    "WAITING",
                                    "PENDING",
                                    "RUNNING",
                                    "RETRYING",
                                    "COMPLETED",
                                    "DEAD_LETTERED",
                                    "CANCELLED",
                                ],
                            )
                        ),
                        name="pulse_job_status_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("attempts__gt", models.F("refunds")),
                                ("lease_until__isnull", False),
                                ("locked_by__isnull", False),
                                ("started_at__isnull", False),
                                ("status", "RUNNING"),
                                ("token__isnull", False),
                            ),
                            models.Q(
                                models.Q(("status", "RUNNING"), _negated=True),
                                ("deadline__isnull", True),
                                ("lease_until__isnull", True),
                                ("locked_by__isnull", True),
                                ("token__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_job_running_iff_leased",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("finished_at__isnull", False),
                                ("status__in", ["COMPLETED", "DEAD_LETTERED", "CANCELLED"]),
                            ),
                            models.Q(
                                models.Q(("status__in", ["COMPLETED", "DEAD_LETTERED", "CANCELLED"]), _negated=True),
                                ("finished_at__isnull", True),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_job_finished_iff_terminal",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status", "DEAD_LETTERED"), _negated=True),
                            models.Q(("last_error", ""), _negated=True),
                            _connector="OR",
                        ),
                        name="pulse_job_dead_letter_has_reason",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("attempts__gte", models.F("refunds")), ("refunds__gte", 0)),
                        name="pulse_job_refunds_within_attempts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("max_attempts__gte", 1),
                            (
                                "max_attempts__gte",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("attempts"), "-", models.F("refunds")
                                ),
                            ),
                        ),
                        name="pulse_job_attempts_within_budget",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                            (
                                "max_attempts__gt",
                                django.db.models.expressions.CombinedExpression(
                                    models.F("attempts"), "-", models.F("refunds")
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_job_waiting_has_budget",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                            ("cancel_requested_at__isnull", True),
                            _connector="OR",
                        ),
                        name="pulse_job_waiting_is_wanted",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("attempts__gte", models.F("losses")), ("losses__gte", 0)),
                        name="pulse_job_losses_within_attempts",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("completed_by__isnull", True),
                                ("completed_token__isnull", True),
                                ("result__isnull", True),
                            ),
                            ("status", "COMPLETED"),
                            _connector="OR",
                        ),
                        name="pulse_job_result_only_if_completed",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("priority__gte", -100), ("priority__lte", 100)),
                        name="pulse_job_priority_in_range",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                ("lease_ttl__isnull", True),
                                models.Q(
                                    ("lease_ttl__gt", datetime.timedelta(0)),
                                    ("lease_ttl__lte", datetime.timedelta(days=365000)),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("timeout__isnull", True),
                                models.Q(
                                    ("timeout__gt", datetime.timedelta(0)),
                                    ("timeout__lte", datetime.timedelta(days=365000)),
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("progress_timeout__isnull", True),
                                models.Q(
                                    ("progress_timeout__gt", datetime.timedelta(0)),
                                    ("progress_timeout__lte", datetime.timedelta(days=365000)),
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="pulse_job_durations_are_sensible",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("next_run_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("next_run_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_job_instant_can_be_read",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("id__gt", 0),
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "lease_until",
                                    "deadline",
                                    "progress_at",
                                    "cancel_requested_at",
                                    "created_at",
                                    "started_at",
                                    "finished_at",
                                ),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest(
                                    "lease_until",
                                    "deadline",
                                    "progress_at",
                                    "cancel_requested_at",
                                    "created_at",
                                    "started_at",
                                    "finished_at",
                                ),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_job_can_be_read",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.Exact(
                                pulse_django.queue.database.sql_functions.JsonType("args"), models.Value("array")
                            ),
                            django.db.models.lookups.Exact(
                                pulse_django.queue.database.sql_functions.JsonType("kwargs"), models.Value("object")
                            ),
                        ),
                        name="pulse_job_arguments_have_their_shape",
                    ),
                    models.CheckConstraint(
                        condition=django.db.models.lookups.LessThanOrEqual(
                            django.db.models.expressions.CombinedExpression(
                                django.db.models.expressions.CombinedExpression(
                                    django.db.models.expressions.CombinedExpression(
                                        pulse_django.queue.database.sql_functions.StoredSize("args"),
                                        "+",
                                        pulse_django.queue.database.sql_functions.StoredSize("kwargs"),
                                    ),
                                    "+",
                                    django.db.models.functions.comparison.Coalesce(
                                        pulse_django.queue.database.sql_functions.StoredSize("progress"), 0
                                    ),
                                ),
                                "+",
                                django.db.models.functions.comparison.Coalesce(
                                    pulse_django.queue.database.sql_functions.StoredSize("result"), 0
                                ),
                            ),
                            33554432,
                        ),
                        name="pulse_job_payload_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(
                                models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                                django.db.models.lookups.LessThanOrEqual(
                                    django.db.models.expressions.CombinedExpression(
                                        django.db.models.expressions.CombinedExpression(
                                            pulse_django.queue.database.sql_functions.TextSize("args"),
                                            "+",
                                            pulse_django.queue.database.sql_functions.TextSize("kwargs"),
                                        ),
                                        "+",
                                        django.db.models.functions.comparison.Coalesce(
                                            pulse_django.queue.database.sql_functions.TextSize("progress"), 0
                                        ),
                                    ),
                                    33554432,
                                ),
                                _connector="OR",
                            ),
                            models.Q(
                                ("result__isnull", True),
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.TextSize("result"), 33554432
                                ),
                                _connector="OR",
                            ),
                        ),
                        name="pulse_job_payload_text_is_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("meta__isnull", True), ("search_terms__isnull", True), ("tags__isnull", True)),
                            models.Q(("status__in", ["WAITING", "PENDING", "RETRYING"]), _negated=True),
                            models.Q(
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.TextSize("meta"), 32768
                                ),
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.Cardinality("tags"), 20
                                ),
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.TextSize("tags"), 32768
                                ),
                                django.db.models.lookups.IsNull(
                                    pulse_django.queue.database.sql_functions.PlaceOfNull("tags"), True
                                ),
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.Cardinality("search_terms"), 8
                                ),
                                django.db.models.lookups.LessThanOrEqual(
                                    pulse_django.queue.database.sql_functions.TextSize("search_terms"), 32768
                                ),
                                django.db.models.lookups.IsNull(
                                    pulse_django.queue.database.sql_functions.PlaceOfNull("search_terms"), True
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_job_labels_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("last_error"), 16384
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("cancel_reason"), 16384
                            ),
                        ),
                        name="pulse_job_texts_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("give_up_after__isnull", True),
                            models.Q(
                                ("give_up_after__gt", datetime.timedelta(0)),
                                ("give_up_after__lte", datetime.timedelta(days=365000)),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_job_retry_limit_is_sensible",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(("weight__gte", 1), ("weight__lte", 1000)), name="pulse_job_weight_in_range"
                    ),
                    models.UniqueConstraint(
                        condition=models.Q(
                            ("finished_at__isnull", True),
                            ("unique_key__isnull", False),
                            models.Q(("unique_until_start", False), ("attempts", 0), _connector="OR"),
                        ),
                        fields=("task", "unique_key"),
                        name="pulse_job_one_per_unique_key",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("expires_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("expires_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_job_expiry_can_be_read",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("on_dead"), 131072
                            )
                        ),
                        name="pulse_job_hook_is_bounded",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="StoredAttempt",
            fields=[
                ("number", models.IntegerField()),
                ("token", models.BigIntegerField()),
                ("worker", pulse_django.queue.database.sql_functions.ShortText(max_length=160)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField()),
                (
                    "outcome",
                    pulse_django.queue.database.sql_functions.ShortText(
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("WAITED", "Waited"),
                            ("RELEASED", "Released"),
                            ("CANCELLED", "Cancelled"),
                            ("DISCARDED", "Discarded"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "error_class",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200
                    ),
                ),
                ("message", models.TextField(blank=True, db_default="", default="")),
                ("traceback", models.TextField(blank=True, db_default="", default="")),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "late_outcome",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True,
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("WAITED", "Waited"),
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
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="stored_attempts",
                        to="pulse_django.job",
                    ),
                ),
            ],
            options={
                "db_table": "pulse_django_attempt",
                "default_permissions": (),
                "indexes": [
                    models.Index(
                        condition=models.Q(("outcome", "WORKER_LOST")),
                        fields=["worker", "id"],
                        name="pulse_attempt_lost",
                        opclasses=["varchar_pattern_ops", "int8_ops"],
                    ),
                    models.Index(
                        condition=models.Q(("late_at__isnull", False)), fields=["late_at"], name="pulse_attempt_late"
                    ),
                ],
                "constraints": [
                    models.UniqueConstraint(fields=("job", "number"), name="pulse_attempt_one_per_run"),
                    models.CheckConstraint(
                        condition=models.Q(("number__gt", 0)), name="pulse_attempt_number_is_positive"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            (
                                "outcome__in",
                                [
                                    "SUCCEEDED",
                                    "FAILED",
                                    "TIMED_OUT",
                                    "STALLED",
                                    "WORKER_LOST",
                                    "SNOOZED",
                                    "WAITED",
                                    "RELEASED",
                                    "CANCELLED",
                                    "DISCARDED",
                                ],
                            )
                        ),
                        name="pulse_attempt_outcome_is_known",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            models.Q(("late_at__isnull", True), ("late_outcome", "")),
                            models.Q(
                                ("late_at__isnull", False),
                                (
                                    "late_outcome__in",
                                    [
                                        "SUCCEEDED",
                                        "FAILED",
                                        "TIMED_OUT",
                                        "STALLED",
                                        "WORKER_LOST",
                                        "SNOOZED",
                                        "WAITED",
                                        "RELEASED",
                                        "CANCELLED",
                                        "DISCARDED",
                                    ],
                                ),
                            ),
                            _connector="OR",
                        ),
                        name="pulse_attempt_late_has_an_instant",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "due_at", "started_at", "finished_at", "last_seen_at", "late_at"
                                ),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest(
                                    "due_at", "started_at", "finished_at", "last_seen_at", "late_at"
                                ),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_attempt_instants_can_be_read",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("message"), 40000
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("traceback"), 256000
                            ),
                        ),
                        name="pulse_attempt_texts_are_bounded",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("number", models.IntegerField()),
                ("token", models.BigIntegerField()),
                ("worker", pulse_django.queue.database.sql_functions.ShortText(max_length=160)),
                ("due_at", models.DateTimeField(blank=True, null=True)),
                ("started_at", models.DateTimeField()),
                ("finished_at", models.DateTimeField()),
                (
                    "outcome",
                    pulse_django.queue.database.sql_functions.ShortText(
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("WAITED", "Waited"),
                            ("RELEASED", "Released"),
                            ("CANCELLED", "Cancelled"),
                            ("DISCARDED", "Discarded"),
                        ],
                        max_length=16,
                    ),
                ),
                (
                    "error_class",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=200
                    ),
                ),
                ("message", models.TextField(blank=True, db_default="", default="")),
                ("traceback", models.TextField(blank=True, db_default="", default="")),
                ("last_seen_at", models.DateTimeField(blank=True, null=True)),
                (
                    "late_outcome",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True,
                        choices=[
                            ("SUCCEEDED", "Succeeded"),
                            ("FAILED", "Failed"),
                            ("TIMED_OUT", "Timed out"),
                            ("STALLED", "Stalled"),
                            ("WORKER_LOST", "Worker lost"),
                            ("SNOOZED", "Snoozed"),
                            ("WAITED", "Waited"),
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
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.DO_NOTHING,
                        related_name="ledger",
                        to="pulse_django.job",
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
                "db_table": "pulse_django_ledger",
                "managed": False,
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", pulse_django.queue.database.sql_functions.ShortText(max_length=80)),
                ("boot_id", pulse_django.queue.database.sql_functions.ShortText(max_length=40)),
                ("host", pulse_django.queue.database.sql_functions.ShortText(max_length=255)),
                ("pid", models.IntegerField()),
                ("versions", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("queues", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                ("slots", models.IntegerField()),
                ("in_flight", models.IntegerField(db_default=0, default=0)),
                ("tasks", models.JSONField(blank=True, null=True)),
                ("vitals", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("stuck_slots", models.IntegerField(db_default=0, default=0)),
                (
                    "started_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                (
                    "last_beat_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
                ("stopped_at", models.DateTimeField(blank=True, null=True)),
                ("lost_at", models.DateTimeField(blank=True, null=True)),
                ("acknowledged_at", models.DateTimeField(blank=True, null=True)),
                ("stack_wanted", models.BigIntegerField(blank=True, editable=False, null=True)),
                ("stack_asked_at", models.DateTimeField(blank=True, editable=False, null=True)),
                ("stack_of", models.BigIntegerField(blank=True, editable=False, null=True)),
                ("stack", models.TextField(blank=True, db_default="", default="", editable=False)),
                ("stack_at", models.DateTimeField(blank=True, editable=False, null=True)),
                (
                    "acknowledged_by",
                    pulse_django.queue.database.sql_functions.ShortText(
                        blank=True, db_default="", default="", max_length=150
                    ),
                ),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "permissions": [
                    ("pulse_view_workers", "Can see workers"),
                    ("pulse_change_workers", "Can acknowledge lost workers, and request stacks of handlers"),
                ],
                "default_permissions": (),
                "constraints": [
                    models.UniqueConstraint(fields=("name", "boot_id"), name="pulse_worker_one_per_boot"),
                    models.CheckConstraint(
                        condition=models.Q(("in_flight__gte", 0), ("slots__gte", 0)), name="pulse_worker_has_slots"
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("lost_at__isnull", False),
                            models.Q(("acknowledged_at__isnull", True), ("acknowledged_by", "")),
                            _connector="OR",
                        ),
                        name="pulse_worker_acknowledged_if_lost",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("versions"), 1048576
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("queues"), 1048576
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("tasks"), 1048576
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("vitals"), 1048576
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("stack"), 256000
                            ),
                        ),
                        name="pulse_worker_documents_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least(
                                    "started_at",
                                    "last_beat_at",
                                    "stopped_at",
                                    "lost_at",
                                    "acknowledged_at",
                                    "stack_asked_at",
                                    "stack_at",
                                ),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest(
                                    "started_at",
                                    "last_beat_at",
                                    "stopped_at",
                                    "lost_at",
                                    "acknowledged_at",
                                    "stack_asked_at",
                                    "stack_at",
                                ),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_worker_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Fence",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("resource", pulse_django.queue.database.sql_functions.ShortText(max_length=200, unique=True)),
                ("token", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "fence",
                "verbose_name_plural": "fences",
                "default_permissions": (),
            },
        ),
        migrations.CreateModel(
            name="Minute",
            fields=[
                ("minute", models.DateTimeField(primary_key=True, serialize=False)),
                ("signs", models.JSONField()),
                ("totals", models.JSONField(blank=True, null=True)),
                ("workers", models.JSONField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "minute",
                "verbose_name_plural": "minutes",
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("signs"), 33554432
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("totals"), 33554432
                            ),
                            django.db.models.lookups.LessThanOrEqual(
                                pulse_django.queue.database.sql_functions.TextSize("workers"), 33554432
                            ),
                        ),
                        name="pulse_minute_documents_are_bounded",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("minute__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ("minute__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                        ),
                        name="pulse_minute_instants_can_be_read",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="Duty",
            fields=[
                (
                    "name",
                    pulse_django.queue.database.sql_functions.ShortText(
                        max_length=40, primary_key=True, serialize=False
                    ),
                ),
                ("taken_at", models.DateTimeField()),
                ("done_at", models.DateTimeField()),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least("taken_at", "done_at"),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest("taken_at", "done_at"),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_duty_instants_can_be_read",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Declaration",
            fields=[
                (
                    "scope",
                    pulse_django.queue.database.sql_functions.ShortText(
                        max_length=200, primary_key=True, serialize=False
                    ),
                ),
                ("worker", pulse_django.queue.database.sql_functions.ShortText(max_length=160)),
                ("booted_at", models.DateTimeField()),
                ("fingerprint", pulse_django.queue.database.sql_functions.ShortText(max_length=64)),
                (
                    "declared_at",
                    models.DateTimeField(db_default=pulse_django.queue.database.sql_functions.ClockTimestamp()),
                ),
            ],
            options={
                "default_permissions": (),
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            django.db.models.lookups.GreaterThanOrEqual(
                                django.db.models.functions.comparison.Least("booted_at", "declared_at"),
                                models.Value(datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                            django.db.models.lookups.LessThan(
                                django.db.models.functions.comparison.Greatest("booted_at", "declared_at"),
                                models.Value(datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                            ),
                        ),
                        name="pulse_declaration_instants_can_be_read",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="DeadLetter",
            fields=[],
            options={
                "verbose_name": "dead letter",
                "verbose_name_plural": "dead letters",
                "proxy": True,
                "default_permissions": (),
            },
            bases=("pulse_django.job",),
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": [
                    ("pulse_view_queues", "Can see queues"),
                    ("pulse_operate_queues", "Can pause and resume queues"),
                ],
                "proxy": True,
                "default_permissions": (),
            },
            bases=("pulse_django.pause",),
        ),
        migrations.CreateModel(
            name="Board",
            fields=[],
            options={
                "verbose_name": "board",
                "verbose_name_plural": "board",
                "permissions": [("pulse_view_board", "Can see the board")],
                "proxy": True,
                "default_permissions": (),
            },
            bases=("pulse_django.queue",),
        ),
        migrations.CreateModel(
            name="TaskOverview",
            fields=[],
            options={
                "verbose_name": "task",
                "verbose_name_plural": "tasks",
                "proxy": True,
                "default_permissions": (),
            },
            bases=("pulse_django.job",),
        ),
        migrations.RunPython(
            code=pulse_django.migrations._schema.complete,
            reverse_code=pulse_django.migrations._schema.undo,
        ),
    ]
