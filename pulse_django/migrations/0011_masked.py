from django.db import migrations

import pulse_django.store.short_texts


class Migration(migrations.Migration):
    """Keep with a job what its task hid of it when it was enqueued."""

    dependencies = [
        ("pulse_django", "0010_payload_text"),
    ]

    operations = [
        migrations.AddField(
            model_name="job",
            name="masked",
            field=pulse_django.store.short_texts.ShortText(blank=True, editable=False, max_length=2000, null=True),
        ),
    ]
