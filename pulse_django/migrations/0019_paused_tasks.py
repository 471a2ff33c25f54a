"""Let tasks be paused, and let their jobs be set aside: ``ready`` may be NULL.

No table is rewritten. The index is built while the queue works. This can be started again if it was interrupted.
"""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
ALTER = "BEGIN; SET LOCAL lock_timeout = '500ms'; {}; COMMIT"

WIDEN = ALTER.format('ALTER TABLE pulse_django_pausedkey ALTER COLUMN lane_key TYPE varchar(205) COLLATE "C"')
# The release before takes these for keys of limits.
NARROW = (
    "DELETE FROM pulse_django_pausedkey WHERE lane_key::text >= 'task=' AND lane_key::text < 'task>'",
    ALTER.format('ALTER TABLE pulse_django_pausedkey ALTER COLUMN lane_key TYPE varchar(200) COLLATE "C"'),
)

# Rows of history never have the NULL, but a partition cannot allow what its table refuses.
ALLOW_NULL = ALTER.format("ALTER TABLE pulse_django_job ALTER COLUMN ready DROP NOT NULL")
WAITING = "status::text IN ('PENDING', 'RETRYING')"
REFUSE_NULL = (
    "UPDATE pulse_django_job_hot SET ready = lane_key::text = '' OR next_run_at <= clock_timestamp()"
    " WHERE ready IS NULL",
    ALTER.format("ALTER TABLE pulse_django_job ALTER COLUMN ready SET NOT NULL"),
)

# The condition ``ready-overdue`` asks when the last sweep was.
GRANT = grant_like("SELECT", "pulse_django_queue", "SELECT ON pulse_django_duty")

NAME = "pulse_job_set_aside"
DROP = f"DROP INDEX CONCURRENTLY IF EXISTS {NAME}"  # an interrupted build leaves an invalid index
CREATE = f"CREATE INDEX CONCURRENTLY {NAME} ON pulse_django_job_hot (task, id) WHERE ready IS NULL AND {WAITING}"


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0018_check_weights")]

    operations = [
        migrations.RunSQL(
            WIDEN,
            NARROW,
            state_operations=[
                migrations.AlterField(
                    "PausedKey",
                    "lane_key",
                    pulse_django.store.sql_functions.ShortText(
                        db_collation="C", max_length=205, primary_key=True, serialize=False
                    ),
                )
            ],
        ),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
        # Undone in this order: what refuses the NULL changes the rows first.
        migrations.RunSQL(
            ALLOW_NULL,
            REFUSE_NULL,
            state_operations=[
                migrations.AlterField(
                    "Job", "ready", models.BooleanField(db_default=True, default=True, editable=False, null=True)
                )
            ],
        ),
        migrations.RunSQL(DROP, DROP),
        migrations.RunSQL(
            CREATE,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        fields=["task", "id"],
                        name=NAME,
                        condition=models.Q(status__in=["PENDING", "RETRYING"], ready__isnull=True),
                    ),
                )
            ],
        ),
    ]
