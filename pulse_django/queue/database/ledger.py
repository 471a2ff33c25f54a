"""The columns of the ledger, which is a table and a view."""

from __future__ import annotations

from django.db import models

from pulse_django.queue.words.payloads import MAX_CLASS

from .sql_functions import OUTCOMES, ShortText

MAX_STATUS = 16
MAX_HOLDER = 160


class LedgerRow(models.Model):
    """One ended run."""

    number = models.IntegerField()  # the job's ``attempts`` during the run
    token = models.BigIntegerField()
    worker = ShortText(max_length=MAX_HOLDER)  # the holder of the run's lease
    due_at = models.DateTimeField(null=True, blank=True)  # when the job was due
    started_at = models.DateTimeField()
    finished_at = models.DateTimeField()
    outcome = ShortText(max_length=MAX_STATUS, choices=OUTCOMES)
    error_class = ShortText(max_length=MAX_CLASS, blank=True, default="", db_default="")
    message = models.TextField(blank=True, default="", db_default="")
    traceback = models.TextField(blank=True, default="", db_default="")
    # If a watchdog ended the run: the last sign of life of its worker. It died between then and its next heartbeat.
    last_seen_at = models.DateTimeField(null=True, blank=True)
    # The outcome that the worker of this run reported after the job had moved on.
    late_outcome = ShortText(max_length=MAX_STATUS, choices=OUTCOMES, blank=True, default="", db_default="")
    late_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True

    def __str__(self) -> str:
        return f"attempt {self.number} of job {self.job_id}: {self.outcome}"  # type: ignore[attr-defined]
