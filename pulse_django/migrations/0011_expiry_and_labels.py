"""Add the columns of expiry, of the limit of retries, and of tags and meta.

None of them rewrites the table. Their indexes follow in the next migration, which builds them while the queue works.
"""

from django.db import migrations, models

from pulse_django.migrations import _eras
from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like_column
from pulse_django.store.sql_functions import Tags

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"

COLUMNS = "(expires_at, give_up_after, tags, meta)"
# A role that may insert some columns may insert these, too, and one that may change the arguments of a unique job may
# change these with them. Rights on the whole table include them.
GRANT_AGAIN = (
    grant_like_column("INSERT", "pulse_django_job_hot", "max_attempts", f"INSERT {COLUMNS} ON pulse_django_job_hot"),
    grant_like_column("UPDATE", "pulse_django_job_hot", "args", f"UPDATE {COLUMNS} ON pulse_django_job_hot"),
    grant_like_column("SELECT", "pulse_django_job_hot", "next_run_at", "SELECT (expires_at) ON pulse_django_job_hot"),
)


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0010_amendments")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.AddField("Job", "expires_at", models.DateTimeField(blank=True, editable=False, null=True)),
        migrations.AddField("Job", "give_up_after", models.DurationField(blank=True, editable=False, null=True)),
        migrations.AddField("Job", "tags", Tags(blank=True, default=list, editable=False, null=True)),
        migrations.AddField("Job", "meta", models.JSONField(blank=True, editable=False, null=True)),
        migrations.RunSQL(GRANT_AGAIN, migrations.RunSQL.noop),
        migrations.RunPython(_eras.index_tags_of_days, _eras.index_no_tags_of_days),
        migrations.RunSQL(migrations.RunSQL.noop, LIMIT_LOCKS),  # on the way back this is the first
    ]
