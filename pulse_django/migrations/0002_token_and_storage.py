"""The token sequence, and the storage parameters that were measured for these tables."""

from django.db import migrations

# One token per claim of any job. CACHE 1 (the default) is part of the contract: a cached range would be handed out
# late, and a later claim could get a smaller token.
CREATE_SEQUENCE = "CREATE SEQUENCE pulse_django_token AS bigint"
DROP_SEQUENCE = "DROP SEQUENCE pulse_django_token"

# fillfactor: room in each page, so that heartbeats update in place (docs/adr/0004 has the measurements).
# autovacuum: a queue's table is small and dies fast. Waiting for a fifth of it, as the default does, lets dead rows
# pile up in front of every claim; 5,000 dead rows are a fraction of a second's work.
SET_JOB_STORAGE = """
ALTER TABLE pulse_django_job SET (
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0,
    autovacuum_analyze_threshold = 20000
)
"""
RESET_JOB_STORAGE = """
ALTER TABLE pulse_django_job RESET (
    fillfactor,
    autovacuum_vacuum_scale_factor,
    autovacuum_vacuum_threshold,
    autovacuum_vacuum_cost_delay,
    autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold
)
"""


class Migration(migrations.Migration):
    dependencies = [("pulse_django", "0001_initial")]

    operations = [
        migrations.RunSQL(CREATE_SEQUENCE, DROP_SEQUENCE),
        migrations.RunSQL(SET_JOB_STORAGE, RESET_JOB_STORAGE),
    ]
