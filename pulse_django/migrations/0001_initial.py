"""The tables, the token sequence, and the storage parameters that were measured for these tables."""

import datetime

import django.db.models.deletion
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations import _days
from pulse_django.migrations._fingerprints import FirstFingerprint
from pulse_django.migrations._postgresql import PostgresMigration

# One token per claim of any job. CACHE 1 (the default) is part of the contract: a cached range would be handed out
# late, and a later claim could get a smaller token.
CREATE_SEQUENCE = "CREATE SEQUENCE pulse_django_token AS bigint"
DROP_SEQUENCE = "DROP SEQUENCE pulse_django_token"

# fillfactor: room in each page, so that heartbeats update in place (docs/adr/0004 has the measurements).
# autovacuum: a queue's table is small and dies fast. Waiting for a fifth of it, as the default does, lets dead rows
# pile up in front of every claim; 5,000 dead rows are a fraction of a second's work.
SET_JOB_STORAGE = """
ALTER TABLE pulse_django_job SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000
)
"""
RESET_JOB_STORAGE = """
ALTER TABLE pulse_django_job RESET (
    fillfactor,
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold
)
"""


class Migration(PostgresMigration):
    initial = True

    dependencies = []

    operations = [
        migrations.RunPython(_days.refuse_distributed_schema, migrations.RunPython.noop),
        migrations.CreateModel(
            name="Fence",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("resource", pulse_django.store.sql_functions.ShortText(max_length=200, unique=True)),
                ("token", models.BigIntegerField()),
            ],
            options={
                "verbose_name": "fence",
                "verbose_name_plural": "fences",
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
            },
        ),
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("task", pulse_django.store.sql_functions.ShortText(max_length=200)),
                (
                    "queue",
                    pulse_django.store.sql_functions.ShortText(db_default="default", default="default", max_length=100),
                ),
                ("priority", models.SmallIntegerField(db_default=0, default=0)),
                ("args", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                ("kwargs", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("payload_bytes", models.IntegerField(blank=True, editable=False, null=True)),
                ("idempotency_key", pulse_django.store.sql_functions.ShortText(blank=True, max_length=200, null=True)),
                ("trace", pulse_django.store.sql_functions.ShortText(blank=True, max_length=64, null=True)),
                (
                    "masked",
                    pulse_django.store.sql_functions.ShortText(blank=True, editable=False, max_length=2000, null=True),
                ),
                (
                    "status",
                    pulse_django.store.sql_functions.ShortText(
                        choices=[
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
                ("next_run_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("attempts", models.IntegerField(db_default=0, default=0)),
                ("refunds", models.IntegerField(db_default=0, default=0)),
                ("max_attempts", models.IntegerField(db_default=10, default=10)),
                ("losses", models.IntegerField(db_default=0, default=0)),
                ("max_losses", models.SmallIntegerField(blank=True, null=True)),
                ("free_losses", models.BooleanField(db_default=False, default=False)),
                ("locked_by", pulse_django.store.sql_functions.ShortText(blank=True, max_length=160, null=True)),
                ("lease_until", models.DateTimeField(blank=True, null=True)),
                ("token", models.BigIntegerField(blank=True, null=True)),
                ("lease_ttl", models.DurationField(blank=True, null=True)),
                ("timeout", models.DurationField(blank=True, null=True)),
                ("deadline", models.DateTimeField(blank=True, null=True)),
                ("stall_after", models.DurationField(blank=True, null=True)),
                ("progress", models.JSONField(blank=True, null=True)),
                ("progress_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_requested_at", models.DateTimeField(blank=True, null=True)),
                ("cancel_reason", models.TextField(blank=True, db_default="", default="")),
                ("last_error", models.TextField(blank=True, db_default="", default="")),
                ("result", models.JSONField(blank=True, null=True)),
                ("created_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("started_at", models.DateTimeField(blank=True, null=True)),
                ("finished_at", models.DateTimeField(blank=True, null=True)),
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
            ],
            options={
                "verbose_name": "job",
                "verbose_name_plural": "jobs",
                "permissions": [
                    ("retry_job", "Can retry dead letters"),
                    ("cancel_job", "Can cancel jobs, and take them from their workers"),
                    ("schedule_job", "Can say when and where waiting jobs run"),
                    ("view_arguments", "Can see the arguments and results of jobs"),
                ],
            },
        ),
        migrations.CreateModel(
            name="Attempt",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
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
                (
                    "job",
                    models.ForeignKey(
                        db_constraint=False,
                        db_index=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="ledger",
                        to="pulse_django.job",
                    ),
                ),
            ],
            options={
                "verbose_name": "attempt",
                "verbose_name_plural": "attempts",
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
                "indexes": [],
                "constraints": [],
            },
            bases=("pulse_django.job",),
        ),
        migrations.CreateModel(
            name="Queue",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", pulse_django.store.sql_functions.ShortText(max_length=100, unique=True)),
                ("paused_at", models.DateTimeField(blank=True, null=True)),
                ("paused_until", models.DateTimeField(blank=True, null=True)),
                ("pause_reason", models.TextField(blank=True, db_default="", default="")),
            ],
            options={
                "verbose_name": "queue",
                "verbose_name_plural": "queues",
                "permissions": [("operate_queue", "Can pause and resume queues")],
                "constraints": [
                    models.CheckConstraint(
                        condition=models.Q(
                            ("paused_at__isnull", False),
                            models.Q(("pause_reason", ""), ("paused_until__isnull", True)),
                            _connector="OR",
                        ),
                        name="pulse_queue_pause_has_a_start",
                    )
                ],
            },
        ),
        migrations.CreateModel(
            name="Board",
            fields=[],
            options={
                "verbose_name": "board",
                "verbose_name_plural": "board",
                "proxy": True,
                "default_permissions": ("view",),
                "indexes": [],
                "constraints": [],
            },
            bases=("pulse_django.queue",),
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.BigAutoField(primary_key=True, serialize=False)),
                ("name", pulse_django.store.sql_functions.ShortText(max_length=80)),
                ("boot_id", pulse_django.store.sql_functions.ShortText(max_length=40)),
                ("host", pulse_django.store.sql_functions.ShortText(max_length=255)),
                ("pid", models.IntegerField()),
                ("versions", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("queues", models.JSONField(db_default=models.Value([], models.JSONField()), default=list)),
                ("slots", models.IntegerField()),
                ("in_flight", models.IntegerField(db_default=0, default=0)),
                ("tasks", models.JSONField(blank=True, null=True)),
                ("vitals", models.JSONField(db_default=models.Value({}, models.JSONField()), default=dict)),
                ("stuck_slots", models.IntegerField(db_default=0, default=0)),
                ("started_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("last_beat_at", models.DateTimeField(db_default=pulse_django.store.sql_functions.ClockTimestamp())),
                ("stopped_at", models.DateTimeField(blank=True, null=True)),
            ],
            options={
                "verbose_name": "worker",
                "verbose_name_plural": "workers",
                "constraints": [
                    models.UniqueConstraint(fields=("name", "boot_id"), name="pulse_worker_one_per_boot"),
                    models.CheckConstraint(
                        condition=models.Q(("in_flight__gte", 0), ("slots__gte", 0)), name="pulse_worker_has_slots"
                    ),
                ],
            },
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                models.F("queue"),
                models.OrderBy(models.F("priority"), descending=True),
                models.F("next_run_at"),
                models.F("id"),
                condition=models.Q(("status__in", ["PENDING", "RETRYING"])),
                name="pulse_job_claim",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(condition=models.Q(("status", "RUNNING")), fields=["id"], name="pulse_job_reap"),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status__in", ["COMPLETED", "DEAD_LETTERED", "CANCELLED"])),
                fields=["status", "finished_at", "id"],
                name="pulse_job_retention",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("status", "DEAD_LETTERED")),
                fields=["finished_at", "id"],
                name="pulse_job_dead_letters",
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                condition=models.Q(("parent__isnull", False)), fields=["parent"], name="pulse_job_children"
            ),
        ),
        migrations.AddIndex(
            model_name="job",
            index=models.Index(
                FirstFingerprint("last_error"),
                models.F("finished_at"),
                models.F("id"),
                condition=models.Q(("status", "DEAD_LETTERED")),
                name="pulse_job_fingerprint",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.UniqueConstraint(
                condition=models.Q(("idempotency_key__isnull", False)),
                fields=("task", "idempotency_key"),
                name="pulse_job_one_per_key",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("status__in", ["PENDING", "RUNNING", "RETRYING", "COMPLETED", "DEAD_LETTERED", "CANCELLED"])
                ),
                name="pulse_job_status_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
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
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        ("finished_at__isnull", False), ("status__in", ["COMPLETED", "DEAD_LETTERED", "CANCELLED"])
                    ),
                    models.Q(
                        models.Q(("status__in", ["COMPLETED", "DEAD_LETTERED", "CANCELLED"]), _negated=True),
                        ("finished_at__isnull", True),
                    ),
                    _connector="OR",
                ),
                name="pulse_job_finished_iff_terminal",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status", "DEAD_LETTERED"), _negated=True),
                    models.Q(("last_error", ""), _negated=True),
                    _connector="OR",
                ),
                name="pulse_job_dead_letter_has_reason",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("attempts__gte", models.F("refunds")), ("refunds__gte", 0)),
                name="pulse_job_refunds_within_attempts",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("max_attempts__gte", 1),
                    (
                        "max_attempts__gte",
                        django.db.models.expressions.CombinedExpression(models.F("attempts"), "-", models.F("refunds")),
                    ),
                ),
                name="pulse_job_attempts_within_budget",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                    (
                        "max_attempts__gt",
                        django.db.models.expressions.CombinedExpression(models.F("attempts"), "-", models.F("refunds")),
                    ),
                    _connector="OR",
                ),
                name="pulse_job_waiting_has_budget",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                    ("cancel_requested_at__isnull", True),
                    _connector="OR",
                ),
                name="pulse_job_waiting_is_wanted",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("attempts__gte", models.F("losses")), ("losses__gte", 0)),
                name="pulse_job_losses_within_attempts",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("result__isnull", True), ("status", "COMPLETED"), _connector="OR"),
                name="pulse_job_result_only_if_completed",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(("priority__gte", -100), ("priority__lte", 100)), name="pulse_job_priority_in_range"
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
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
                            ("timeout__gt", datetime.timedelta(0)), ("timeout__lte", datetime.timedelta(days=365000))
                        ),
                        _connector="OR",
                    ),
                    models.Q(
                        ("stall_after__isnull", True),
                        models.Q(
                            ("stall_after__gt", datetime.timedelta(0)),
                            ("stall_after__lte", datetime.timedelta(days=365000)),
                        ),
                        _connector="OR",
                    ),
                ),
                name="pulse_job_durations_are_sensible",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    ("next_run_at__gte", datetime.datetime(1899, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                    ("next_run_at__lt", datetime.datetime(9002, 1, 1, 0, 0, tzinfo=datetime.UTC)),
                ),
                name="pulse_job_instant_can_be_read",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    django.db.models.lookups.Exact(
                        pulse_django.store.sql_functions.JsonType("args"), models.Value("array")
                    ),
                    django.db.models.lookups.Exact(
                        pulse_django.store.sql_functions.JsonType("kwargs"), models.Value("object")
                    ),
                ),
                name="pulse_job_arguments_have_their_shape",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=django.db.models.lookups.LessThanOrEqual(
                    django.db.models.expressions.CombinedExpression(
                        django.db.models.expressions.CombinedExpression(
                            django.db.models.expressions.CombinedExpression(
                                pulse_django.store.sql_functions.StoredSize("args"),
                                "+",
                                pulse_django.store.sql_functions.StoredSize("kwargs"),
                            ),
                            "+",
                            django.db.models.functions.comparison.Coalesce(
                                pulse_django.store.sql_functions.StoredSize("progress"), 0
                            ),
                        ),
                        "+",
                        django.db.models.functions.comparison.Coalesce(
                            pulse_django.store.sql_functions.StoredSize("result"), 0
                        ),
                    ),
                    33554432,
                ),
                name="pulse_job_payload_is_bounded",
            ),
        ),
        migrations.AddConstraint(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                        django.db.models.lookups.LessThanOrEqual(
                            django.db.models.expressions.CombinedExpression(
                                django.db.models.expressions.CombinedExpression(
                                    pulse_django.store.sql_functions.TextSize("args"),
                                    "+",
                                    pulse_django.store.sql_functions.TextSize("kwargs"),
                                ),
                                "+",
                                django.db.models.functions.comparison.Coalesce(
                                    pulse_django.store.sql_functions.TextSize("progress"), 0
                                ),
                            ),
                            33554432,
                        ),
                        _connector="OR",
                    ),
                    models.Q(
                        ("result__isnull", True),
                        django.db.models.lookups.LessThanOrEqual(
                            pulse_django.store.sql_functions.TextSize("result"), 33554432
                        ),
                        _connector="OR",
                    ),
                ),
                name="pulse_job_payload_text_is_bounded",
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("outcome", "WORKER_LOST")),
                fields=["worker", "id"],
                name="pulse_attempt_lost",
                opclasses=["varchar_pattern_ops", "int8_ops"],
            ),
        ),
        migrations.AddIndex(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("late_at__isnull", False)), fields=["late_at"], name="pulse_attempt_late"
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.UniqueConstraint(fields=("job", "number"), name="pulse_attempt_one_per_run"),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
                condition=models.Q(("number__gt", 0)), name="pulse_attempt_number_is_positive"
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
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
                            "RELEASED",
                            "CANCELLED",
                            "DISCARDED",
                        ],
                    )
                ),
                name="pulse_attempt_outcome_is_known",
            ),
        ),
        migrations.AddConstraint(
            model_name="attempt",
            constraint=models.CheckConstraint(
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
        ),
        migrations.RunSQL(CREATE_SEQUENCE, DROP_SEQUENCE),
        migrations.RunSQL(SET_JOB_STORAGE, RESET_JOB_STORAGE),
    ]
