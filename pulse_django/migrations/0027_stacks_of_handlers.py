"""Add where a worker answers where a handler is. Columns without a rewrite, in a small table."""

from django.db import migrations, models

from pulse_django.migrations._postgresql import PostgresMigration
from pulse_django.migrations._rights import grant_like

# Who pauses queues asks where handlers are.
GRANT = grant_like("INSERT", "pulse_django_queue", "UPDATE (stack_wanted, stack_asked_at) ON pulse_django_worker")
NUMBER = models.BigIntegerField(blank=True, editable=False, null=True)
INSTANT = models.DateTimeField(blank=True, editable=False, null=True)


class Migration(PostgresMigration):
    dependencies = [("pulse_django", "0026_search_terms")]

    operations = [
        migrations.AddField("Worker", "stack_wanted", NUMBER),
        migrations.AddField("Worker", "stack_asked_at", INSTANT),
        migrations.AddField("Worker", "stack_of", NUMBER.clone()),
        migrations.AddField("Worker", "stack", models.TextField(blank=True, db_default="", default="", editable=False)),
        migrations.AddField("Worker", "stack_at", INSTANT.clone()),
        migrations.RunSQL(GRANT, migrations.RunSQL.noop),
    ]
