"""The tables with the traffic of tasks and queues, and with releases. ``models.py`` loads them."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.releases import MAX_VERSION
from pulse_django.queue.database.sql_functions import IntegerList, ShortText, bounded, instants_of
from pulse_django.queue.words.bounds import MAX_NOTE_TEXT, MAX_TASK_NAME


class Traffic(models.Model):
    """The traffic of one task or queue in one span of time."""

    pk = models.CompositePrimaryKey("kind", "length", "began_at", "name")
    kind = ShortText(max_length=5)
    length = models.SmallIntegerField()  # in minutes
    began_at = models.DateTimeField()
    name = ShortText(max_length=MAX_TASK_NAME)
    enqueued = models.IntegerField()
    started = models.IntegerField()
    succeeded = models.IntegerField()
    failed = models.IntegerField()
    died = models.IntegerField()
    ran_seconds = models.FloatField()
    ran = IntegerList()  # runs by bucket
    waited_seconds = models.FloatField()
    waited = IntegerList()

    class Meta:
        constraints: ClassVar = [
            bounded("pulse_traffic_buckets_are_bounded", ran=MAX_NOTE_TEXT, waited=MAX_NOTE_TEXT),
            instants_of("traffic", "began_at"),
        ]
        default_permissions = ()

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.began_at.isoformat()}"


class Release(models.Model):
    """A version of the project on workers, for the marks in charts."""

    id = models.BigAutoField(primary_key=True)
    version = ShortText(max_length=MAX_VERSION)
    seen_at = models.DateTimeField()  # its first start, or after a rollback, the end of the newer version

    class Meta:
        constraints: ClassVar = [instants_of("release", "seen_at")]
        default_permissions = ()

    def __str__(self) -> str:
        return self.version
