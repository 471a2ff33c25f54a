"""The tables of jobs that are on their way from one shard to another."""

from __future__ import annotations

from typing import ClassVar

from django.db import models

from pulse_django.queue.database.sql_functions import ClockTimestamp, instants_of


class Departure(models.Model):
    """A job that has left this shard, until it is known to have arrived in another."""

    id = models.BigAutoField(primary_key=True)
    job_id = models.BigIntegerField(unique=True)
    to_shard = models.IntegerField()  # its number
    rows = models.JSONField()  # of the job, its attempts, its keys and its amendments
    at = models.DateTimeField(db_default=ClockTimestamp())

    class Meta:
        constraints: ClassVar = [instants_of("departure", "at")]
        default_permissions = ()

    def __str__(self) -> str:
        return f"job {self.job_id} to shard {self.to_shard}"


class Arrival(models.Model):
    """A departure of another shard that has arrived here, or is refused. It is kept beyond the time it is needed for,
    because a statement that writes the job may come late.
    """

    departure_id = models.BigIntegerField(primary_key=True)  # given only once over all shards
    is_refused = models.BooleanField(default=False, db_default=False)  # it goes back, and never arrives here
    at = models.DateTimeField(db_default=ClockTimestamp())
    forgotten_at = models.DateTimeField(null=True)  # when that shard had forgotten it

    class Meta:
        constraints: ClassVar = [instants_of("arrival", "at", "forgotten_at")]
        default_permissions = ()

    def __str__(self) -> str:
        return str(self.departure_id)
