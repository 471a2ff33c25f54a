"""Add the column of the arguments that jobs are found by, its indexes, and those of jobs that have failed.

No table is rewritten. The indexes are built while the queue works. This can be started again if it was interrupted.
"""

from typing import Any

from django.db import migrations, models

from pulse_django.migrations import _days, _eras
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like_column
from pulse_django.store.sql_functions import TagIndex, Tags

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
ALTER = "BEGIN; SET LOCAL lock_timeout = '500ms'; ALTER TABLE pulse_django_job {}; COMMIT"
ADD_COLUMN = ALTER.format("ADD COLUMN IF NOT EXISTS search_terms text[]")
DROP_COLUMN = ALTER.format("DROP COLUMN IF EXISTS search_terms")

# A role that may insert some columns may insert this one, too, and one that may change arguments may change it with
# them. Rights on the whole table include it.
GRANT_AGAIN = (
    grant_like_column(
        "INSERT", "pulse_django_job_hot", "max_attempts", "INSERT (search_terms) ON pulse_django_job_hot"
    ),
    grant_like_column("UPDATE", "pulse_django_job_hot", "args", "UPDATE (search_terms) ON pulse_django_job_hot"),
)

# An interrupted build leaves an invalid index.
DROP_INDEXES = (
    "DROP INDEX CONCURRENTLY IF EXISTS pulse_job_search",
    "DROP INDEX CONCURRENTLY IF EXISTS pulse_job_errors",
)
CREATE_INDEXES = (
    """
    CREATE INDEX CONCURRENTLY pulse_job_search ON pulse_django_job_hot USING gin (search_terms)
    WITH (fastupdate = off) WHERE search_terms IS NOT NULL
    """,
    "CREATE INDEX CONCURRENTLY pulse_job_errors ON pulse_django_job_hot (id) WHERE last_error <> ''",
)


def index_days(apps: Any, schema_editor: Any) -> None:
    """Build the indexes of the days that there are."""
    with schema_editor.connection.cursor() as cursor:
        for suffix in ("search", "errors"):
            _days.index_days(cursor, suffix)


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0025_lost_workers")]

    operations = [
        migrations.RunSQL(
            ADD_COLUMN,
            DROP_COLUMN,
            state_operations=[
                migrations.AddField("Job", "search_terms", Tags(blank=True, default=list, editable=False, null=True))
            ],
        ),
        migrations.RunSQL(GRANT_AGAIN, migrations.RunSQL.noop),
        migrations.RunPython(_eras.index_searches_of_days, _eras.index_no_searches_of_days),
        migrations.RunSQL(DROP_INDEXES, DROP_INDEXES),
        migrations.RunSQL(
            CREATE_INDEXES,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    "Job",
                    TagIndex(
                        condition=models.Q(("search_terms__isnull", False)),
                        fields=["search_terms"],
                        name="pulse_job_search",
                    ),
                ),
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        condition=models.Q(("last_error", ""), _negated=True), fields=["id"], name="pulse_job_errors"
                    ),
                ),
            ],
        ),
        migrations.RunPython(index_days, migrations.RunPython.noop),
    ]
