"""Group errors by where they were raised, and by what they say without values: another index of dead letters.

It is built while the queue works. This can be started again if it was interrupted.
"""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._fingerprints import FirstFingerprint
from pulse_django.migrations._postgresql import PostgresMigration

COLUMN = {"expressions": "last_error"}
ON = "ON pulse_django_job_hot ({}, {}, id) WHERE status::text = 'DEAD_LETTERED'"


def replaced(old: str, new: str, template: str, at: str) -> tuple[str, ...]:
    """Return the statements that build one index and drop the other. An interrupted build leaves an invalid one."""
    return (
        f"DROP INDEX CONCURRENTLY IF EXISTS {new}",
        f"CREATE INDEX CONCURRENTLY {new} {ON.format(template % COLUMN, at)}",
        f"DROP INDEX CONCURRENTLY IF EXISTS {old}",
    )


FIRST, SECOND = "pulse_job_fingerprint", "pulse_job_error_group"


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0027_stacks_of_handlers")]

    operations = [
        migrations.RunSQL(
            replaced(
                FIRST, SECOND, pulse_django.store.sql_functions.Fingerprint.template, "(finished_at AT TIME ZONE 'UTC')"
            ),
            replaced(SECOND, FIRST, FirstFingerprint.template, "finished_at"),
            state_operations=[
                migrations.RemoveIndex("Job", FIRST),
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        pulse_django.store.sql_functions.Fingerprint("last_error"),
                        pulse_django.store.sql_functions.InUtc("finished_at"),
                        models.F("id"),
                        condition=models.Q(("status", "DEAD_LETTERED")),
                        name=SECOND,
                    ),
                ),
            ],
        ),
    ]
