"""Build the indexes of expiry and of tags, while the queue works, and check how long jobs are retried.

This can be started again if it was interrupted.
"""

from datetime import timedelta
from typing import Any

from django.db import ProgrammingError, migrations, models

from pulse_django.store.tags import TagIndex

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

# Days that were made before the last migration. Those made since have the index.
DAYS = """
SELECT day.relname
FROM pg_inherits AS link
JOIN pg_class AS day ON day.oid = link.inhrelid
WHERE link.inhparent = 'pulse_django_job_over'::regclass::oid AND day.relname::text <> 'pulse_django_job_other'
    AND NOT EXISTS (
        SELECT FROM pg_index AS i
        JOIN pg_class AS index ON index.oid = i.indexrelid
        WHERE i.indrelid = day.oid AND i.indisvalid AND index.relname::text = day.relname::text || '_tags'
    )
ORDER BY day.relname
"""
UNDEFINED_TABLE = "42P01"


def index_days(apps: Any, schema_editor: Any) -> None:
    """Index the tags of the days that there are. A watchdog may drop one meanwhile."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute(DAYS)
        for (day,) in cursor.fetchall():
            cursor.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {day}_tags")
            try:
                cursor.execute(
                    f"CREATE INDEX CONCURRENTLY {day}_tags ON {day} USING gin (tags) WITH (fastupdate = off)"
                    " WHERE tags IS NOT NULL"
                )
            except ProgrammingError as error:
                if getattr(error.__cause__, "sqlstate", "") != UNDEFINED_TABLE:
                    raise


class Migration(migrations.Migration):
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
