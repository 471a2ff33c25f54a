"""Keep when a watchdog of the fleet last did what one of them does in each interval."""

from django.db import migrations, models

import pulse_django.store.sql_functions
from pulse_django.migrations._postgresql import PostgresMigration


class Migration(PostgresMigration):
    dependencies = [
        ("pulse_django", "0005_copy_the_last_keys"),
    ]

    operations = [
        migrations.CreateModel(
            name="Duty",
            fields=[
                ("name", pulse_django.store.sql_functions.ShortText(max_length=40, primary_key=True, serialize=False)),
                ("taken_at", models.DateTimeField()),
                ("done_at", models.DateTimeField()),
            ],
        ),
    ]
