from typing import Any

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models

import pulse_django.store.sql_functions


class AddIndexBesideALiveQueue(AddIndexConcurrently):
    """Go on where an attempt was given up: a timeout leaves an index that is invalid, and those before it in place."""

    def database_forwards(self, app_label: str, schema_editor: Any, from_state: Any, to_state: Any) -> None:
        is_valid = None if schema_editor.collect_sql else self._is_valid(schema_editor.connection)
        if is_valid is False:
            schema_editor.execute(f"DROP INDEX CONCURRENTLY {schema_editor.quote_name(self.index.name)}")
        if not is_valid:
            super().database_forwards(app_label, schema_editor, from_state, to_state)

    def _is_valid(self, connection: Any) -> bool | None:
        """Say whether the index can be used. None: there is no such index."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT indisvalid FROM pg_index WHERE indexrelid = pg_catalog.to_regclass(%s)::oid", [self.index.name]
            )
            row = cursor.fetchone()
        return None if row is None else bool(row[0])


class Migration(migrations.Migration):
    """Indexes of few rows each, built beside a live queue: none of them makes a writer wait."""

    atomic = False

    dependencies = [
        ("pulse_django", "0006_console"),
    ]

    operations = [
        AddIndexBesideALiveQueue(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("outcome", "WORKER_LOST")),
                fields=["worker", "id"],
                name="pulse_attempt_lost",
                opclasses=["varchar_pattern_ops", "int8_ops"],
            ),
        ),
        AddIndexBesideALiveQueue(
            model_name="attempt",
            index=models.Index(
                condition=models.Q(("late_at__isnull", False)), fields=["late_at"], name="pulse_attempt_late"
            ),
        ),
        AddIndexBesideALiveQueue(
            model_name="job",
            index=models.Index(
                pulse_django.store.sql_functions.Fingerprint("last_error"),
                models.F("finished_at"),
                models.F("id"),
                condition=models.Q(("status", "DEAD_LETTERED")),
                name="pulse_job_fingerprint",
            ),
        ),
    ]
