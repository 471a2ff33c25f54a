"""The tables for jobs that are moving from one shard to another."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.sql_functions import ClockTimestamp, instants_of


class Departure(models.Model):
    """A job that has left this shard, and is not yet known to have arrived in another one."""

    id = models.BigAutoField(primary_key=True)
    job_id = models.BigIntegerField(unique=True)
    to_shard = models.IntegerField()  # the number of the shard
    rows = models.JSONField()  # the rows of the job, its attempts, its keys and its amendments
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints: ClassVar = [instants_of("departure", "at")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"job {self.job_id} to shard {self.to_shard}"


class Arrival(models.Model):
    """A departure of another shard that has arrived here or was refused. It is kept for longer than it seems needed,
    because a statement that writes the job may come late.
    """

    departure_id = models.BigIntegerField(primary_key=True)  # unique over all shards
    is_refused = models.BooleanField(default=False, db_default=False)  # the job goes back, and never arrives here
    at = models.DateTimeField(db_default=ClockTimestamp())
    forgotten_at = models.DateTimeField(null=True)  # when the other shard had deleted the departure

    class Meta:
        constraints: ClassVar = [instants_of("arrival", "at", "forgotten_at")]
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.departure_id)
