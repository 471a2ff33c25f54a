"""Add the weight of a job. The column does not rewrite the table."""

from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like_column

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"
GRANTS = (
    grant_like_column("INSERT", "pulse_django_job_hot", "max_attempts", "INSERT (weight) ON pulse_django_job_hot"),
    grant_like_column("UPDATE", "pulse_django_job_hot", "args", "UPDATE (weight) ON pulse_django_job_hot"),
)
# This reads no row. The next migration reads all rows, and blocks neither reads nor writes.
ADD_CHECK = """
ALTER TABLE pulse_django_job_hot ADD CONSTRAINT pulse_job_weight_in_range
CHECK (weight >= 1 AND weight <= 1000) NOT VALID
"""
DROP_CHECK = "ALTER TABLE pulse_django_job_hot DROP CONSTRAINT pulse_job_weight_in_range"


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0016_paused_keys")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.AddField("Job", "weight", models.SmallIntegerField(db_default=1, default=1, editable=False)),
        migrations.RunSQL(
            ADD_CHECK,
            DROP_CHECK,
            state_operations=[
                migrations.AddConstraint(
                    "Job",
                    models.CheckConstraint(
                        condition=models.Q(("weight__gte", 1), ("weight__lte", 1000)), name="pulse_job_weight_in_range"
                    ),
                ),
            ],
        ),
        migrations.RunSQL(GRANTS, migrations.RunSQL.noop),
        migrations.RunSQL(migrations.RunSQL.noop, LIMIT_LOCKS),  # on the way back this is the first
    ]
