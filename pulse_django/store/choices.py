"""The statuses of jobs and the outcomes of runs as the admin shows them, in the language of the reader."""

from __future__ import annotations

from typing import Any

from django.utils.translation import gettext_lazy as _

from pulse_django.words.outcomes import OutcomeName
from pulse_django.words.states import Status

STATUSES: list[tuple[str, Any]] = [
    (Status.WAITING.value, _("Waiting")),
    (Status.PENDING.value, _("Pending")),
    (Status.RUNNING.value, _("Running")),
    (Status.RETRYING.value, _("Retrying")),
    (Status.COMPLETED.value, _("Completed")),
    (Status.DEAD_LETTERED.value, _("Dead lettered")),
    (Status.CANCELLED.value, _("Cancelled")),
]

OUTCOMES: list[tuple[str, Any]] = [
    (OutcomeName.SUCCEEDED.value, _("Succeeded")),
    (OutcomeName.FAILED.value, _("Failed")),
    (OutcomeName.TIMED_OUT.value, _("Timed out")),
    (OutcomeName.STALLED.value, _("Stalled")),
    (OutcomeName.WORKER_LOST.value, _("Worker lost")),
    (OutcomeName.SNOOZED.value, _("Snoozed")),
    (OutcomeName.WAITED.value, _("Waited")),
    (OutcomeName.RELEASED.value, _("Released")),
    (OutcomeName.CANCELLED.value, _("Cancelled")),
    (OutcomeName.DISCARDED.value, _("Discarded")),
]
