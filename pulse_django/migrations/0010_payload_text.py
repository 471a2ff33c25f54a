from typing import Any

import django.db.models.expressions
import django.db.models.functions.comparison
import django.db.models.lookups
from django.contrib.postgres.operations import AddConstraintNotValid
from django.db import IntegrityError, migrations, models

import pulse_django.store.sql_functions


class AddFieldOnce(migrations.AddField):
    """Go on where an attempt was given up."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        if schema_editor.collect_sql or not self._is_there(app_label, schema_editor.connection):
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def _is_there(self, app_label: str, connection: Any) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS ("
                " SELECT FROM pg_attribute WHERE attrelid = pg_catalog.to_regclass(%s)::oid AND attname = %s)",
                [f"{app_label}_{self.model_name}", self.name],
            )
            return bool(cursor.fetchone()[0])


class AddConstraintBesideALiveQueue(AddConstraintNotValid):
    """Check new rows from the first moment, then read those that exist under a lock that keeps no writer waiting.

    A row that breaks the rule already stays. The constraint is then not valid for old rows, `pulse_watchdog --check`
    says so, and its repair validates it when the row is gone.
    """

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        name = schema_editor.quote_name(self.constraint.name)
        table = schema_editor.quote_name(to_state.apps.get_model(app_label, self.model_name)._meta.db_table)
        if schema_editor.collect_sql or not self._is_there(schema_editor.connection, table):
            super().database_forwards(app_label, schema_editor, from_state, to_state)
        try:
            schema_editor.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")
        except IntegrityError as error:
            print(f"\n    {self.constraint.name} does not hold for rows that exist: {error}")  # noqa: T201 - as migrate does

    def _is_there(self, connection: Any, table: str) -> bool:
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT EXISTS ("
                " SELECT FROM pg_constraint WHERE conrelid = pg_catalog.to_regclass(%s)::oid AND conname = %s)",
                [table, self.constraint.name],
            )
            return bool(cursor.fetchone()[0])


class Migration(migrations.Migration):
    """Measure payloads as the text that workers read."""

    atomic = False

    dependencies = [
        ("pulse_django", "0009_trace"),
    ]

    operations = [
        AddFieldOnce(
            model_name="job",
            name="payload_bytes",
            field=models.IntegerField(blank=True, editable=False, null=True),
        ),
        AddConstraintBesideALiveQueue(
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
    ]
