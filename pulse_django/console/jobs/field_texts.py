"""What the fields of a job are called, and what they mean, for those who read its page."""

from __future__ import annotations

from typing import Any

from django import forms
from django.utils.translation import gettext_lazy as _

from pulse_django.models import Job

LABELS: dict[str, Any] = {
    "task": _("Task"),
    "queue": _("Queue"),
    "priority": _("Priority"),
    "idempotency_key": _("Idempotency key"),
    "max_attempts": _("Attempts, at most"),
    "max_losses": _("Lost workers, at most"),
    "free_losses": _("Lost workers are free"),
    "lease_ttl": _("Lease"),
    "timeout": _("Time limit of a run"),
    "stall_after": _("Time limit without progress"),
    "status": _("Status"),
    "attempts": _("Attempts so far"),
    "refunds": _("Refunds"),
    "losses": _("Lost workers"),
    "locked_by": _("Holder"),
    "token": _("Fencing token"),
    "lease_until": _("Lease until"),
    "deadline": _("Deadline of the run"),
    "progress_at": _("Last progress"),
    "cancel_requested_at": _("Asked to stop"),
    "cancel_reason": _("Why it was asked to stop"),
    "created_at": _("Enqueued"),
    "next_run_at": _("Due"),
    "started_at": _("Latest run began"),
    "finished_at": _("Ended"),
}

HELP: dict[str, Any] = {
    "priority": _("Higher runs first."),
    "idempotency_key": _("A second job of the task with the same key is not enqueued while this one is kept."),
    "max_losses": _("After so many the job is a dead letter, whatever attempts are left. None: as the settings say."),
    "lease_ttl": _("For how long its worker may be silent. None: as the settings say."),
    "attempts": _("Claims, also those that were refunded. It never falls."),
    "refunds": _("Attempts that do not count: put back, handed back by a worker that stopped, or granted by a retry."),
    "token": _("Other systems may refuse whoever comes with a smaller one."),
    "lease_until": _("By the server's clock. Each heartbeat extends it; once it is over, a watchdog ends the run."),
    "next_run_at": _("Not before. Of a job that has ended: when its last run was due."),
}


class JobWords(forms.ModelForm):
    """A form without fields: the admin takes its words from here, and a migration is not needed for them."""

    class Meta:
        model = Job
        fields: tuple[str, ...] = ()
        labels = LABELS
        help_texts = HELP
