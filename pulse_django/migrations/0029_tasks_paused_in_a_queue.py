"""Let a task be paused in one queue: its row names the queue too, and what is set aside is found by it.

No table is rewritten. The index is built while the queue works. This can be started again if it was interrupted.
"""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
ALTER = (
    "BEGIN; SET LOCAL lock_timeout = '500ms';"
    ' ALTER TABLE pulse_django_pausedkey ALTER COLUMN lane_key TYPE varchar({}) COLLATE "C"; COMMIT'
)
# The release before would pause no task for them.
FORGET = "DELETE FROM pulse_django_pausedkey WHERE pg_catalog.strpos(lane_key::text, pg_catalog.chr(10)) > 0"

FIRST, SECOND = "pulse_job_set_aside", "pulse_job_aside"
ON = "ON pulse_django_job_hot ({}) WHERE ready IS NULL AND status::text IN ('PENDING', 'RETRYING')"


def replaced(old: str, new: str, columns: str) -> tuple[str, ...]:
    """Return the statements that build one index and drop the other. An interrupted build leaves an invalid one."""
    return (
        f"DROP INDEX CONCURRENTLY IF EXISTS {new}",
        f"CREATE INDEX CONCURRENTLY {new} {ON.format(columns)}",
        f"DROP INDEX CONCURRENTLY IF EXISTS {old}",
    )


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0028_error_groups")]

    operations = [
        migrations.RunSQL(
            ALTER.format(306),
            (FORGET, ALTER.format(205)),
            state_operations=[
                migrations.AlterField(
                    "PausedKey",
                    "lane_key",
                    pulse_django.store.sql_functions.ShortText(
                        db_collation="C", max_length=306, primary_key=True, serialize=False
                    ),
                )
            ],
        ),
        migrations.RunSQL(
            replaced(FIRST, SECOND, "task, queue, id"),
            replaced(SECOND, FIRST, "task, id"),
            state_operations=[
                migrations.RemoveIndex("Job", FIRST),
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        fields=["task", "queue", "id"],
                        name=SECOND,
                        condition=models.Q(status__in=["PENDING", "RETRYING"], ready__isnull=True),
                    ),
                ),
            ],
        ),
    ]
