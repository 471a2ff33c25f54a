"""Build the indexes of lanes with keys, while the queue works, and drop the one that they replace.

This can be started again if it was interrupted.
"""

from django.db import migrations, models
from django.db.models import F, Q

from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.store.sql_functions import LimiterOf

WAITING = "status::text IN ('PENDING', 'RETRYING')"
HOLDS_KEY = "status::text = 'RUNNING' AND NOT (lane_key::text = '')"
NEW = {
    "pulse_job_lane": f"(queue, priority DESC, ready DESC, lane_key, next_run_at, id) WHERE {WAITING}",
    "pulse_job_unready": f"(next_run_at, id) WHERE NOT ready AND {WAITING}",
    "pulse_job_held_key": f"(lane_key, token) WHERE {HOLDS_KEY}",
    "pulse_job_held_limit": (
        f"((pg_catalog.split_part((lane_key)::text, ':', 1) COLLATE \"C\"), token) WHERE {HOLDS_KEY}"
    ),
}
OLD = (
    "CREATE INDEX CONCURRENTLY pulse_job_claim ON pulse_django_job_hot (queue, priority DESC, next_run_at, id) "
    f"WHERE {WAITING}"
)

# An interrupted build leaves an invalid index.
DROP_NEW = tuple(f"DROP INDEX CONCURRENTLY IF EXISTS {name}" for name in NEW)
CREATE_NEW = tuple(f"CREATE INDEX CONCURRENTLY {name} ON pulse_django_job_hot {shape}" for name, shape in NEW.items())
DROP_OLD = "DROP INDEX CONCURRENTLY IF EXISTS pulse_job_claim"

STATES = ["PENDING", "RETRYING"]
HELD = Q(("status", "RUNNING"), Q(("lane_key", ""), _negated=True))


class Migration(PostgresMigration):
    atomic = False

    dependencies = [("pulse_django", "0013_lane_keys_and_limits")]

    operations = [
        migrations.RunSQL(DROP_NEW, DROP_NEW),
        migrations.RunSQL(
            CREATE_NEW,
            migrations.RunSQL.noop,
            state_operations=[
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        "queue",
                        F("priority").desc(),
                        F("ready").desc(),
                        "lane_key",
                        "next_run_at",
                        "id",
                        name="pulse_job_lane",
                        condition=Q(status__in=STATES),
                    ),
                ),
                migrations.AddIndex(
                    "Job",
                    models.Index(
                        fields=["next_run_at", "id"],
                        name="pulse_job_unready",
                        condition=Q(status__in=STATES, ready=False),
                    ),
                ),
                migrations.AddIndex(
                    "Job",
                    models.Index(fields=["lane_key", "token"], name="pulse_job_held_key", condition=HELD),
                ),
                migrations.AddIndex(
                    "Job",
                    models.Index(LimiterOf("lane_key"), "token", name="pulse_job_held_limit", condition=HELD),
                ),
            ],
        ),
        migrations.RunSQL(
            DROP_OLD,
            (DROP_OLD, OLD),
            state_operations=[migrations.RemoveIndex("Job", "pulse_job_claim")],
        ),
    ]
