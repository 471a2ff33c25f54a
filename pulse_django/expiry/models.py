"""The column of jobs that expire."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from pulse_django.queue.database.sql_functions import in_range, index, rule
from pulse_django.queue.job import JobRow
from pulse_django.queue.words.states import Status


class ExpiryColumns(JobRow):
    expires_at = models.DateTimeField(null=True, blank=True, editable=False)  # the job must have started by then

    class Meta:
        abstract = True
        constraints: ClassVar = [rule("pulse_job_expiry_can_be_read", in_range("expires_at"))]
        # Jobs that can expire and that no worker has claimed. A claim removes the job from this index.
        indexes: ClassVar = [
            index(
                "pulse_job_expiry", ["expires_at"], Q(status=Status.PENDING.value, attempts=0, expires_at__isnull=False)
            )
        ]
