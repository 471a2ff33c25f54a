"""Measure payloads as the text that workers read.

Rows that exist are not measured: the check is NOT VALID, so that no lock is held while the table is read. What waits
already and is larger can still be claimed.
"""

import django.contrib.postgres.operations
import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.lookups
from django.db import migrations, models

import pulse_django.functions


class Migration(migrations.Migration):
    dependencies = [
        ("pulse_django", "0009_trace"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="payload_bytes",
            field=models.IntegerField(blank=True, editable=False, null=True),
        ),
        django.contrib.postgres.operations.AddConstraintNotValid(
            model_name="job",
            constraint=models.CheckConstraint(
                condition=models.Q(
                    models.Q(
                        models.Q(("status__in", ["PENDING", "RETRYING"]), _negated=True),
                        django.db.models.lookups.LessThanOrEqual(
                            django.db.models.expressions.CombinedExpression(
                                django.db.models.expressions.CombinedExpression(
                                    pulse_django.functions.TextSize("args"),
                                    "+",
                                    pulse_django.functions.TextSize("kwargs"),
                                ),
                                "+",
                                django.db.models.functions.comparison.Coalesce(
                                    pulse_django.functions.TextSize("progress"), 0
                                ),
                            ),
                            33554432,
                        ),
                        _connector="OR",
                    ),
                    models.Q(
                        ("result__isnull", True),
                        django.db.models.lookups.LessThanOrEqual(pulse_django.functions.TextSize("result"), 33554432),
                        _connector="OR",
                    ),
                ),
                name="pulse_job_payload_text_is_bounded",
            ),
        ),
    ]
