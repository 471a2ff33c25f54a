"""The table of amendments. ``models.py`` loads it with the others."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.utils.translation import gettext_lazy as _

from pulse_django.queue.database.constraints import MAX_PAYLOAD_TEXT
from pulse_django.queue.database.sql_functions import ClockTimestamp, Document, ShortText, bounded, index, instants_of
from pulse_django.queue.words.bounds import MAX_NOTE_TEXT
from pulse_django.queue.words.masks import MAX_MASKS

from .amend import MAX_AMENDED_BY


class Amendment(models.Model):
    """The arguments that a waiting job had before they were changed.

    It refers to the job by id alone, because the rows of jobs move between partitions.
    """

    id = models.BigAutoField(primary_key=True)
    job_id = models.BigIntegerField()
    at = models.DateTimeField(db_default=ClockTimestamp())
    attempts = models.IntegerField()  # the attempts of the job at that time
    args = Document()
    kwargs = Document()
    sensitive = ShortText(max_length=MAX_MASKS, null=True, blank=True)  # the masks of the job, as text
    by = ShortText(max_length=MAX_AMENDED_BY, blank=True, default="", db_default="")
    reason = models.TextField(blank=True, default="", db_default="")

    class Meta:
        constraints: ClassVar = [
            bounded("pulse_amendment_is_bounded", args=MAX_PAYLOAD_TEXT, kwargs=MAX_PAYLOAD_TEXT, reason=MAX_NOTE_TEXT),
            instants_of("amendment", "at"),
        ]
        verbose_name = _("amendment")
        verbose_name_plural = _("amendments")
        default_permissions = ()
        indexes = [index("pulse_amendment_job", ["job_id", "id"])]

    def __str__(self) -> str:
        return f"job {self.job_id} at {self.at}"
