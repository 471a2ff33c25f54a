"""Build the indexes of expiry and of tags, while the queue works, and check how long jobs are retried.

This can be started again if it was interrupted.
"""

from datetime import timedelta
from typing import Any

from django.db import migrations, models

from pulse_django.migrations import _days
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.store.sql_functions import TagIndex

# An interrupted build leaves an invalid index.
DROP_INDEXES = (
    "DROP INDEX CONCURRENTLY IF EXISTS pulse_job_expiry",
    "DROP INDEX CONCURRENTLY IF EXISTS pulse_job_tags",
)
CREATE_INDEXES = (
    """
    CREATE INDEX CONCURRENTLY pulse_job_expiry ON pulse_django_job_hot (expires_at)
    WHERE attempts = 0 AND expires_at IS NOT NULL AND status::text = 'PENDING'
    """,
    """
    CREATE INDEX CONCURRENTLY pulse_job_tags ON pulse_django_job_hot USING gin (tags) WITH (fastupdate = off)
    WHERE tags IS NOT NULL
    """,
)

DROP_CHECK = "ALTER TABLE pulse_django_job_hot DROP CONSTRAINT IF EXISTS pulse_job_retry_limit_is_sensible"
ADD_CHECK = (
    "BEGIN; SET LOCAL lock_timeout = '500ms'; "
    + DROP_CHECK
    + """;
    ALTER TABLE pulse_django_job_hot ADD CONSTRAINT pulse_job_retry_limit_is_sensible CHECK (
        give_up_after IS NULL OR give_up_after > interval '0' AND give_up_after <= interval '365000 days'
    ) NOT VALID; COMMIT""",
    "ALTER TABLE pulse_django_job_hot VALIDATE CONSTRAINT pulse_job_retry_limit_is_sensible",
)


def index_days(apps: Any, schema_editor: Any) -> None:
    """Index the tags of the days that there are."""
    with schema_editor.connection.cursor() as cursor:
        _days.index_days(cursor, "tags")


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0011_expiry_and_labels")]

    operations = [
        migrations.RunSQL(DROP_INDEXES, DROP_INDEXES),
        migrations.RunSQL(
            CREATE_INDEXES,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        condition=models.Q(("attempts", 0), ("expires_at__isnull", False), ("status", "PENDING")),
                        fields=["expires_at"],
                        name="pulse_job_expiry",
                    ),
                ),
                migrations.AddIndex(
                    "Job",
                    TagIndex(condition=models.Q(("tags__isnull", False)), fields=["tags"], name="pulse_job_tags"),
                ),
            ],
        ),
        migrations.RunSQL(
            ADD_CHECK,
            DROP_CHECK,
            state_operations=[
                migrations.AddConstraint(
                    "Job",
                    models.CheckConstraint(
                        condition=models.Q(
                            ("give_up_after__isnull", True),
                            models.Q(("give_up_after__gt", timedelta(0)), ("give_up_after__lte", timedelta(365000))),
                            _connector="OR",
                        ),
                        name="pulse_job_retry_limit_is_sensible",
                    ),
                ),
            ],
        ),
        migrations.RunPython(index_days, migrations.RunPython.noop),
    ]
