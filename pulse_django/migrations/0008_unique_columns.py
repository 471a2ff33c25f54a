"""Add what unique jobs need: the columns of their key, and the table of periods.

The index follows in the next migration, which builds it while the queue works.
"""

from django.db import migrations, models

from pulse_django.store.short_texts import ShortText

# Waiting for a long transaction would hold up every claim behind it: fail, and let the migration be started again.
LIMIT_LOCKS = "SET LOCAL lock_timeout = '500ms'"

# Who deletes jobs deletes periods too. Without this right a watchdog could not go on.
GRANT_AGAIN = """
DO $$
DECLARE
    allowed record;
BEGIN
    FOR allowed IN
        SELECT acl.grantee
        FROM pg_class AS c, pg_catalog.aclexplode(c.relacl) AS acl
        WHERE c.oid = 'pulse_django_attempt'::regclass::oid AND acl.privilege_type = 'DELETE'
            AND acl.grantee <> c.relowner
    LOOP
        EXECUTE pg_catalog.format(
            'GRANT SELECT, UPDATE, DELETE ON pulse_django_window TO %s',
            CASE allowed.grantee WHEN 0 THEN 'PUBLIC' ELSE allowed.grantee::regrole::text END
        );
    END LOOP;
END
$$
"""
# The tables may belong to another role than the one that migrates.
SAME_OWNER = """
DO $$
DECLARE
    owner text := (SELECT relowner::regrole::text FROM pg_class WHERE oid = 'pulse_django_job_hot'::regclass::oid);
BEGIN
    EXECUTE pg_catalog.format('ALTER TABLE pulse_django_window OWNER TO %1$s', owner);
END
$$
"""


class Migration(migrations.Migration):
    dependencies = [("pulse_django", "0007_schedules")]

    operations = [
        migrations.RunSQL(LIMIT_LOCKS, migrations.RunSQL.noop),
        migrations.CreateModel(
            name="Window",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "task", "key", blank=True, editable=False, primary_key=True, serialize=False
                    ),
                ),
                ("task", ShortText(max_length=200)),
                ("key", ShortText(max_length=64)),
                ("until", models.DateTimeField()),
                ("job_id", models.BigIntegerField()),
            ],
            options={
                "db_table": "pulse_django_window",
                "default_permissions": (),
                "indexes": [
                    models.Index(fields=["until"], name="pulse_window_ended"),
                    models.Index(fields=["job_id"], name="pulse_window_job"),
                ],
            },
        ),
        migrations.AddField("Job", "unique_key", ShortText(blank=True, editable=False, max_length=64, null=True)),
        migrations.AddField(
            "Job", "unique_until_start", models.BooleanField(db_default=False, default=False, editable=False)
        ),
        migrations.RunSQL(SAME_OWNER, migrations.RunSQL.noop),
        migrations.RunSQL(GRANT_AGAIN, migrations.RunSQL.noop),
        migrations.RunSQL(migrations.RunSQL.noop, LIMIT_LOCKS),  # the first operation when this is reversed
    ]
